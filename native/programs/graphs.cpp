// Capture of a stream's work, and graphs: works that run in the order of their calls.
#include "core.hpp"

namespace programs {

Status begin_capture(Stream *handle) {
    auto stream = stream_of(handle);
    if (!stream)
        return INVALID_HANDLE;
    if (stream->captured)
        return INVALID_VALUE;
    if (stream == context()->everything)
        return CAPTURING;
    stream->captured = std::make_shared<std::vector<Work>>();
    return SUCCESS;
}

Status end_capture(Stream *handle, Graph **graph) {
    auto stream = stream_of(handle);
    if (!stream)
        return INVALID_HANDLE;
    Capture works = stream->captured;
    if (!works)
        return INVALID_VALUE;
    for (auto &one : stream->context->streams) // and those that joined by an event
        if (one->captured == works)
            one->captured = nullptr;
    *graph = keep(new Graph{*works});
    return SUCCESS;
}

Status launch_graph(Graph *handle, Stream *on) {
    auto graph = held(handle);
    auto stream = stream_of(on);
    if (!graph || !stream)
        return INVALID_HANDLE;
    Context *in = context();
    return queue(stream, Work{[=](double *) -> Status {
        for (Work &work : graph->works) {
            double takes = 0;
            Status status = work.run ? work.run(&takes) : SUCCESS;
            in->now += takes;
            if (status)
                return status;
        }
        return SUCCESS;
    }, nullptr});
}

} // namespace programs
