// The runtime's front end: streams, events, capture.
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
CALL_PTSZ(cudaStreamSynchronize, (Stream * stream), wait_on(stream))
CALL_PTSZ(cudaStreamQuery, (Stream * stream), wait_on(stream))
CALL_PTSZ(cudaStreamWaitEvent, (Stream * stream, Event *event, unsigned), stream_wait_event(stream, event))

// Write a property of a stream to `to`.
template <class T> static Status report(Stream *handle, T *to, T (*property)(const Stream &)) {
    auto stream = stream_of(handle);
    if (stream && to)
        *to = property(*stream);
    return stream ? SUCCESS : INVALID_HANDLE;
}
CALL_PTSZ(cudaStreamGetFlags, (Stream * stream, unsigned *to),
          report<unsigned>(stream, to, [](const Stream &s) { return unsigned(!s.blocking && s.number); }))
CALL_PTSZ(cudaStreamGetPriority, (Stream * stream, int *to),
          report<int>(stream, to, [](const Stream &s) { return s.priority; }))
CALL_PTSZ(cudaStreamGetId, (Stream * stream, Address *to),
          report<Address>(stream, to, [](const Stream &s) { return s.number; }))
CALL_PTSZ(cudaStreamGetDevice, (Stream * stream, int *to),
          report<int>(stream, to, [](const Stream &s) { return s.context->device; }))
CALL_PTSZ(cudaStreamSetAttribute, (Stream * stream, int, const void *), stream_of(stream) ? SUCCESS : INVALID_HANDLE)

static Status queue_host(Stream *handle, std::function<void()> function) {
    auto stream = stream_of(handle);
    if (!stream)
        return INVALID_HANDLE;
    return queue(stream, HOST_CALL, [=](double *) -> Status { return function(), SUCCESS; });
}
CALL_PTSZ(cudaLaunchHostFunc, (Stream * stream, void (*function)(void *), void *data),
          queue_host(stream, [=] { function(data); }))
CALL_PTSZ(cudaStreamAddCallback, (Stream * stream, void (*function)(Stream *, Status, void *), void *data, unsigned),
          queue_host(stream, [=] { function(stream, SUCCESS, data); }))

CALL(cudaEventCreate, (Event * *made), make_event(made, 0))
CALL(cudaEventCreateWithFlags, (Event * *made, unsigned flags), make_event(made, flags))
CALL(cudaEventDestroy, (Event * event), destroy_event(event))
CALL_PTSZ(cudaEventRecord, (Event * event, Stream *stream), record(event, stream))
CALL_PTSZ(cudaEventRecordWithFlags, (Event * event, Stream *stream, unsigned), record(event, stream))
CALL(cudaEventSynchronize, (Event * event), wait_for_event(event))
CALL(cudaEventQuery, (Event * event), wait_for_event(event))
CALL(cudaEventElapsedTime, (float *milliseconds, Event *start, Event *stop), elapsed(milliseconds, start, stop))
ONCE_MORE(cudaEventElapsedTime, _v2)

CALL_PTSZ(cudaStreamBeginCapture, (Stream * stream, int), begin_capture(stream))
CALL_PTSZ(cudaStreamEndCapture, (Stream * stream, Graph **graph), end_capture(stream, graph))
CALL_PTSZ(cudaStreamIsCapturing, (Stream * stream, int *to),
          report<int>(stream, to, [](const Stream &s) { return int(s.captured != nullptr); }))
// the mode says how strict CUDA is with other threads during a capture; it has no effect here
static Status change_capture(int *) { return SUCCESS; }
CALL(cudaThreadExchangeStreamCaptureMode, (int *mode), change_capture(mode))

} // namespace programs
