// The runtime's front: streams, events, graphs that were captured.
#include "runtime.hpp"

namespace programs {

CALL(cudaStreamCreate, (Stream * *made), make_stream(made, 0, 0))
CALL(cudaStreamCreateWithFlags, (Stream * *made, unsigned flags), make_stream(made, flags, 0))
CALL(cudaStreamCreateWithPriority, (Stream * *made, unsigned flags, int priority), make_stream(made, flags, priority))
CALL(cudaStreamDestroy, (Stream * stream), destroy_stream(stream))

static Status wait_on(Stream *handle) {
    auto stream = stream_of(handle);
    return stream ? wait_for(stream.get(), sequence) : INVALID_HANDLE;
}
CALL(cudaStreamSynchronize, (Stream * stream), wait_on(stream))
ONCE_MORE(cudaStreamSynchronize, _ptsz)
CALL(cudaStreamQuery, (Stream * stream), wait_on(stream))
ONCE_MORE(cudaStreamQuery, _ptsz)
CALL(cudaStreamWaitEvent, (Stream * stream, Event *event, unsigned), stream_waits(stream, event))
ONCE_MORE(cudaStreamWaitEvent, _ptsz)

// What a call tells of a stream.
template <class T> static Status tell(Stream *handle, T *to, T (*of)(const Stream &)) {
    auto stream = stream_of(handle);
    if (stream && to)
        *to = of(*stream);
    return stream ? SUCCESS : INVALID_HANDLE;
}
CALL(cudaStreamGetFlags, (Stream * stream, unsigned *to),
     tell<unsigned>(stream, to, [](const Stream &one) { return unsigned(!one.blocking && one.number); }))
ONCE_MORE(cudaStreamGetFlags, _ptsz)
CALL(cudaStreamGetPriority, (Stream * stream, int *to),
     tell<int>(stream, to, [](const Stream &one) { return one.priority; }))
ONCE_MORE(cudaStreamGetPriority, _ptsz)
CALL(cudaStreamGetId, (Stream * stream, Address *to),
     tell<Address>(stream, to, [](const Stream &one) { return one.number; }))
ONCE_MORE(cudaStreamGetId, _ptsz)
CALL(cudaStreamGetDevice, (Stream * stream, int *to),
     tell<int>(stream, to, [](const Stream &one) { return one.context->device; }))
ONCE_MORE(cudaStreamGetDevice, _ptsz)
CALL(cudaStreamSetAttribute, (Stream * stream, int, const void *), stream_of(stream) ? SUCCESS : INVALID_HANDLE)
ONCE_MORE(cudaStreamSetAttribute, _ptsz)

static Status queue_host(Stream *handle, std::function<void()> function) {
    auto stream = stream_of(handle);
    if (!stream)
        return INVALID_HANDLE;
    return queue(stream, Work{[=](double *) -> Status { return function(), SUCCESS; }, nullptr});
}
CALL(cudaLaunchHostFunc, (Stream * stream, void (*function)(void *), void *data),
     queue_host(stream, [=] { function(data); }))
ONCE_MORE(cudaLaunchHostFunc, _ptsz)
CALL(cudaStreamAddCallback, (Stream * stream, void (*function)(Stream *, Status, void *), void *data, unsigned),
     queue_host(stream, [=] { function(stream, SUCCESS, data); }))
ONCE_MORE(cudaStreamAddCallback, _ptsz)

CALL(cudaEventCreate, (Event * *made), make_event(made, 0))
CALL(cudaEventCreateWithFlags, (Event * *made, unsigned flags), make_event(made, flags))
CALL(cudaEventDestroy, (Event * event), destroy_event(event))
CALL(cudaEventRecord, (Event * event, Stream *stream), record(event, stream))
ONCE_MORE(cudaEventRecord, _ptsz)
CALL(cudaEventRecordWithFlags, (Event * event, Stream *stream, unsigned), record(event, stream))
ONCE_MORE(cudaEventRecordWithFlags, _ptsz)
CALL(cudaEventSynchronize, (Event * event), reached(event))
CALL(cudaEventQuery, (Event * event), reached(event))
CALL(cudaEventElapsedTime, (float *milliseconds, Event *start, Event *stop), elapsed(milliseconds, start, stop))
ONCE_MORE(cudaEventElapsedTime, _v2)

CALL(cudaStreamBeginCapture, (Stream * stream, int), begin_capture(stream))
ONCE_MORE(cudaStreamBeginCapture, _ptsz)
CALL(cudaStreamEndCapture, (Stream * stream, Graph **graph), end_capture(stream, graph))
ONCE_MORE(cudaStreamEndCapture, _ptsz)
CALL(cudaStreamIsCapturing, (Stream * stream, int *to),
     tell<int>(stream, to, [](const Stream &one) { return int(one.captured != nullptr); }))
ONCE_MORE(cudaStreamIsCapturing, _ptsz)
static Status change_capture(int *) { return SUCCESS; } // how strict other threads' captures are
CALL(cudaThreadExchangeStreamCaptureMode, (int *mode), change_capture(mode))

static Status ready(Graph **made, Graph *graph) {
    if (!held(graph))
        return INVALID_HANDLE;
    *made = keep(new Graph(*graph));
    return SUCCESS;
}
static Status forget(Graph *graph) { return live<Graph>.erase(graph) ? SUCCESS : INVALID_HANDLE; }
CALL(cudaGraphInstantiate, (Graph * *made, Graph *graph, unsigned long long), ready(made, graph))
CALL(cudaGraphInstantiateWithFlags, (Graph * *made, Graph *graph, unsigned long long), ready(made, graph))
CALL(cudaGraphDestroy, (Graph * graph), forget(graph))
CALL(cudaGraphExecDestroy, (Graph * graph), forget(graph))
CALL(cudaGraphUpload, (Graph * graph, Stream *), held(graph) ? SUCCESS : INVALID_HANDLE)
ONCE_MORE(cudaGraphUpload, _ptsz)
CALL(cudaGraphLaunch, (Graph * graph, Stream *stream), launch_graph(graph, stream))
ONCE_MORE(cudaGraphLaunch, _ptsz)

} // namespace programs
