// Contexts, events, and streams: queues of work that runs when the program waits.
#include "core.hpp"

#include <algorithm>

namespace programs {

Callbacks callbacks;
std::vector<Card> cards;
thread_local std::vector<Context *> &current = *new std::vector<Context *>;
Context *running;
std::set<Context *> contexts;
unsigned long long sequence;
bool interrupted;
size_t most_queued = 1024;
unsigned long long schedule;
int depth;

static std::recursive_mutex call_mutex;
static std::vector<std::function<void()>> deferred;

CallLock::CallLock() {
    if (!call_mutex.try_lock())
        lock(call_mutex);
    depth++;
}

CallLock::~CallLock() {
    while (depth == 1 && !deferred.empty()) {
        auto work = std::move(deferred.back());
        deferred.pop_back();
        work();
    }
    depth--;
    call_mutex.unlock();
}

Status run_when_idle(const std::function<void()> &work) {
    if (depth > 1)
        deferred.push_back(work);
    else
        work();
    return context() ? context()->failed : SUCCESS;
}

// Contexts ----------------------------------------------------------------------------------------------------------

Context *new_context(int device) {
    Context *made = new Context;
    made->device = device;
    made->default_stream.reset(new Stream{made, false, {}, nullptr});
    contexts.insert(made);
    return made;
}

template <class T> static void erase_handles(Context *of) {
    for (auto at = live<T>.begin(); at != live<T>.end();)
        at = at->second->context == of ? live<T>.erase(at) : std::next(at);
}

void destroy(Context *gone) {
    if (!contexts.count(gone))
        return;
    finish_all_work();
    contexts.erase(gone);
    for (auto at = live<Module>.begin(); at != live<Module>.end();) {
        Module *module = (at++)->first;
        if (module->context == gone)
            unload(module);
    }
    erase_handles<Stream>(gone), erase_handles<Event>(gone);
    gone->streams.clear();
    for (auto at = memories.begin(); at != memories.end();) {
        auto [slot, memory] = *at++;
        if (memory.context == gone)
            release(slot);
    }
    current.erase(std::remove(current.begin(), current.end(), gone), current.end());
}

// Streams -----------------------------------------------------------------------------------------------------------

// Return the stream of a handle, or null. The handles 0 to 2 mean the default stream.
std::shared_ptr<Stream> stream_of(Stream *stream) {
    return (size_t)stream > 2 ? find_handle(stream) : context()->default_stream;
}

static void run_next(Stream *stream);

static void drain(Stream *stream, unsigned long long until) {
    while (!stream->queue.empty() && stream->queue.front().first <= until)
        run_next(stream);
}

// Run the queued work of several streams, one piece at a time. `schedule` decides which stream runs next.
static void drain_all(std::vector<std::shared_ptr<Stream>> streams, unsigned long long until, bool blocking) {
    while (true) {
        std::vector<Stream *> ready;
        for (auto &stream : streams)
            if ((!blocking || stream->blocking) && !stream->queue.empty() && stream->queue.front().first <= until)
                ready.push_back(stream.get());
        if (ready.empty())
            return;
        auto by_call = [](Stream *a, Stream *b) { return a->queue.front().first < b->queue.front().first; };
        if (schedule > 1)
            run_next(ready[random_number() % ready.size()]);
        else
            run_next(*(schedule ? std::max_element(ready.begin(), ready.end(), by_call)
                                : std::min_element(ready.begin(), ready.end(), by_call)));
    }
}

// Run the first piece of work in a stream's queue. Before, run the work of the other stream that it waits for.
static void run_next(Stream *stream) {
    Context *in = stream->context;
    auto [number, work] = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (stream == in->default_stream.get())
        drain_all(in->streams, number, true);
    else if (stream->blocking)
        drain(in->default_stream.get(), number);
    if (work.other)
        drain(work.other.get(), work.until);
    if (!work.run || in->failed || !callable())
        return;
    running = in;
    Status status = run_work(work, in);
    if (!in->failed)
        in->failed = status;
}

// Wait for the launches that still run in another process; their first error becomes the error of their context.
Status finish_launches(Context *in) {
    double nanoseconds = 0;
    Status status = finish_launches(&nanoseconds);
    in->now += nanoseconds;
    if (!in->failed)
        in->failed = status;
    return in->failed;
}

// Run one piece of work. All work but a launch first waits for the launches that still run; a graph does so in its
// nodes.
Status run_work(const Work &work, Context *in) {
    if (!work.run)
        return SUCCESS;
    if (work.type != KERNEL && work.type != CHILD)
        if (Status status = finish_launches(in))
            return status;
    double nanoseconds = 0;
    Status status = work.run(&nanoseconds);
    in->now += nanoseconds;
    return status;
}

// Return the status of a call that waited. After Ctrl-C the status is SUCCESS, so that the program sees only Python's
// own exception.
static Status waited(Context *in) {
    finish_launches(in);
    if (!interrupted)
        return in->failed;
    interrupted = false;
    interrupt();
    return SUCCESS;
}

Status wait_for(Stream *stream, unsigned long long until) {
    if (stream->captured)
        return CAPTURING;
    if (depth == 1)
        drain(stream, until);
    return waited(stream->context);
}

Status wait_for_all(Context *in) {
    if (depth > 1)
        return in->failed;
    std::vector<std::shared_ptr<Stream>> all = in->streams;
    all.push_back(in->default_stream);
    drain_all(all, sequence, false);
    auto gone = [](const std::shared_ptr<Stream> &stream) { return !live<Stream>.count(stream.get()); };
    in->streams.erase(std::remove_if(in->streams.begin(), in->streams.end(), gone), in->streams.end());
    return waited(in);
}

void finish_all_work() {
    for (Context *in : contexts)
        wait_for_all(in);
}

Status queue(const std::shared_ptr<Stream> &stream, Work work) {
    if (stream->captured) {
        stream->captured->push_back(std::move(work));
        return SUCCESS;
    }
    // With several streams, launches keep to the queues: a missing wait shows only if another order runs.
    const Context &in = *stream->context;
    bool idle = in.streams.empty() && in.default_stream->queue.empty();
    bool now = work.type == KERNEL && depth == 1 && !schedule && runs_beside() && idle;
    stream->queue.emplace_back(++sequence, std::move(work));
    if (now) {
        run_next(stream.get());
    } else if (stream->queue.size() > most_queued && depth == 1) {
        while (stream->queue.size() > most_queued / 2)
            run_next(stream.get());
        finish_launches(stream->context);
    }
    return SUCCESS;
}

Status queue(const std::shared_ptr<Stream> &stream, NodeType type, std::function<Status(double *)> run) {
    return queue(stream, Work{std::move(run), nullptr, 0, type});
}

Status make_stream(Stream **made, unsigned flags, int priority) {
    static Address numbers;
    if (!made || flags > 1)
        return INVALID_VALUE;
    *made = add_handle(new Stream{context(), !(flags & 1), {}, nullptr, priority, ++numbers});
    context()->streams.push_back(find_handle(*made));
    return SUCCESS;
}

Status destroy_stream(Stream *stream) {
    if (!find_handle(stream))
        return INVALID_HANDLE;
    Context *in = stream->context;
    live<Stream>.erase(stream); // only the handle becomes invalid; the queued work still runs
    return in->failed;
}

Status stream_wait_event(Stream *handle, Event *event) {
    auto stream = stream_of(handle);
    if (!stream || !find_handle(event))
        return INVALID_HANDLE;
    if (event->captured)
        // the work of this stream also becomes part of the graph, in the order of the calls
        stream->captured = event->captured;
    else if (event->stream)
        return queue(stream, Work{nullptr, event->stream, event->until, WAIT_EVENT});
    return SUCCESS;
}

// Events ------------------------------------------------------------------------------------------------------------

Status make_event(Event **made, unsigned flags) {
    if (!made || flags > 7 || (flags & 4 && !(flags & 2)))
        return INVALID_VALUE;
    *made = add_handle(new Event{context(), !(flags & 2), nullptr, 0, -1, nullptr});
    return SUCCESS;
}

Status destroy_event(Event *event) {
    if (!find_handle(event))
        return INVALID_HANDLE;
    Context *in = event->context;
    live<Event>.erase(event);
    return in->failed;
}

Status record(Event *handle, Stream *on) {
    auto event = find_handle(handle);
    auto stream = stream_of(on);
    if (!event || !stream || stream->context != event->context)
        return INVALID_HANDLE;
    event->captured = stream->captured;
    event->at = -1;
    unsigned long long number = stream->captured ? 0 : sequence + 1;
    event->stream = stream->captured ? nullptr : stream;
    event->until = number;
    return queue(stream, RECORD_EVENT, [=](double *) -> Status {
        if (event->until == number)
            event->at = event->context->now;
        return SUCCESS;
    });
}

Status wait_for_event(Event *event) {
    if (!find_handle(event))
        return INVALID_HANDLE;
    if (event->captured)
        return CAPTURED_EVENT;
    return event->stream ? wait_for(event->stream.get(), event->until) : SUCCESS;
}

Status elapsed(float *milliseconds, Event *start, Event *stop) {
    if (!find_handle(start) || !find_handle(stop) || start->context != stop->context)
        return INVALID_HANDLE;
    for (Event *event : {start, stop})
        if (!event->stream || !event->timed)
            return INVALID_HANDLE;
    if (start->at < 0 || stop->at < 0)
        return NOT_READY;
    *milliseconds = float((stop->at - start->at) * 1e-6);
    return SUCCESS;
}

} // namespace programs
