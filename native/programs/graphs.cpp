// Captures the work of a stream into a graph, and runs graphs. The nodes of a graph run one after the other, each node
// after the nodes that it depends on.
#include "core.hpp"

#include <algorithm>

namespace programs {

Status begin_capture(Stream *handle) {
    auto stream = stream_of(handle);
    if (!stream)
        return INVALID_HANDLE;
    if (stream->captured)
        return INVALID_VALUE;
    if (stream == context()->default_stream)
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
    for (auto &joined : stream->context->streams) // end the capture also in streams that joined it by an event
        if (joined->captured == works)
            joined->captured = nullptr;
    *graph = stream->target ? stream->target : add_handle(new Graph);
    for (Work &work : *works) { // each node depends on the node before it, in the order of the calls
        auto node = std::make_shared<Node>(Node{work, stream->before});
        (*graph)->nodes.push_back(node);
        stream->before = {node.get()};
    }
    stream->target = nullptr, stream->before.clear();
    return SUCCESS;
}

// Copy a graph. in_order: put each node after the nodes that it depends on; if these dependencies form a cycle, return
// INVALID_VALUE.
Status copy_graph(Graph **made, Graph *graph, bool in_order) {
    if (!find_handle(graph))
        return INVALID_HANDLE;
    std::unique_ptr<Graph> copied(new Graph{{}, graph->first});
    std::map<Node *, Node *> copies;
    std::set<Node *> done;
    while (copied->nodes.size() < graph->nodes.size()) {
        size_t before = copied->nodes.size();
        for (auto &node : graph->nodes) {
            auto is_done = [&](Node *dependency) { return done.count(dependency) > 0; };
            if (copies.count(node.get()) ||
                (in_order && !std::all_of(node->before.begin(), node->before.end(), is_done)))
                continue;
            copied->nodes.push_back(std::make_shared<Node>(Node{node->work, node->before, node.get()}));
            copies[node.get()] = copied->nodes.back().get();
            done.insert(node.get());
        }
        if (copied->nodes.size() == before)
            return INVALID_VALUE;
    }
    for (auto &node : copied->nodes)
        for (Node *&dependency : node->before)
            dependency = copies[dependency];
    *made = add_handle(copied.release());
    return SUCCESS;
}

// Return one piece of work that runs all nodes of a graph. Later changes of the graph do not change this work.
Work work_of_graph(const Graph &graph, Context *in) {
    std::vector<Work> works = graph.first;
    for (auto &node : graph.nodes)
        works.push_back(node->work);
    return Work{[=](double *) -> Status {
                    for (const Work &work : works)
                        if (Status status = run_work(work, in))
                            return status;
                    return SUCCESS;
                },
                nullptr, 0, CHILD};
}

Status launch_graph(Graph *handle, Stream *on) {
    auto graph = find_handle(handle);
    auto stream = stream_of(on);
    return graph && stream ? queue(stream, work_of_graph(*graph, context())) : INVALID_HANDLE;
}

} // namespace programs
