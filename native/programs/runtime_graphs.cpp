// The runtime's front end: graphs that the program builds from nodes, and calls that run graphs.
#include "runtime.hpp"

#include <algorithm>

namespace programs {

static Status forget(Graph *graph) { return live<Graph>.erase(graph) ? SUCCESS : INVALID_HANDLE; }
static Status create(Graph **made) { return *made = add_handle(new Graph), SUCCESS; }
CALL(cudaGraphCreate, (Graph * *made, unsigned), create(made))
CALL(cudaGraphClone, (Graph * *made, Graph *graph), copy_graph(made, graph, false))
CALL(cudaGraphInstantiate, (Graph * *made, Graph *graph, unsigned long long), copy_graph(made, graph, true))
CALL(cudaGraphInstantiateWithFlags, (Graph * *made, Graph *graph, unsigned long long), copy_graph(made, graph, true))
CALL(cudaGraphDestroy, (Graph * graph), forget(graph))
CALL(cudaGraphExecDestroy, (Graph * graph), forget(graph))
CALL_PTSZ(cudaGraphUpload, (Graph * graph, Stream *), find_handle(graph) ? SUCCESS : INVALID_HANDLE)
CALL_PTSZ(cudaGraphLaunch, (Graph * graph, Stream *stream), launch_graph(graph, stream))

// Set `work` to the work that `call` queues, so that it can become a node of a graph. A temporary stream captures it.
template <class Call> static Status work_of(Work *work, Call call) {
    Stream *stream = add_handle(new Stream{context(), false, {}, std::make_shared<std::vector<Work>>()});
    Status status = call(stream);
    if (!status)
        *work = stream->captured->empty() ? Work{} : stream->captured->back();
    live<Stream>.erase(stream);
    return status;
}

static Node *node_of(Graph *graph, Node *node) { // in an executable graph, find the copy of the node
    for (auto &candidate : graph->nodes)
        if (candidate.get() == node || candidate->origin == node)
            return candidate.get();
    return nullptr;
}

template <class Call>
static Status add(Node **made, Graph *graph, Node *const *before, size_t count, NodeType type, Call call) {
    if (!made || !find_handle(graph))
        return INVALID_VALUE;
    auto node = std::make_shared<Node>();
    if (Status status = work_of(&node->work, call))
        return status;
    node->work.type = type;
    node->before.assign(before, before + count);
    graph->nodes.push_back(node);
    return *made = node.get(), SUCCESS;
}

template <class Call> static Status change(Graph *graph, Node *node, Call call) {
    Node *target = graph ? node_of(graph, node) : node;
    if (!target)
        return INVALID_VALUE;
    NodeType type = target->work.type;
    Status status = work_of(&target->work, call);
    target->work.type = type;
    return status;
}

// For one kind of node, define the calls that add it to a graph, change it there, and change it in an executable graph.
// `queued` is an expression that queues the node's work.
#define NODES(name, type, parameters, queued)                                                                          \
    CALL(cudaGraphAdd##name, (Node * *made, Graph * graph, Node *const *before, size_t count, parameters),             \
         add(made, graph, before, count, type, [&](Stream *stream) -> Status { return queued; }))
#define NODES_CHANGE(name, parameters, queued)                                                                         \
    CALL(cudaGraph##name##SetParams, (Node * node, parameters),                                                        \
         change(nullptr, node, [&](Stream *stream) -> Status { return queued; }))                                      \
    CALL(cudaGraphExec##name##SetParams, (Graph * graph, Node * node, parameters),                                     \
         change(graph, node, [&](Stream *stream) -> Status { return queued; }))
#define COMMA ,

struct KernelNode { // cudaKernelNodeParams
    const void *function;
    Dim3 grid, block;
    unsigned shared;
    void **parameters, **extra;
};
static Status queue_kernel(const KernelNode &how, Stream *stream) {
    return start_kernel(how.function, how.grid, how.block, how.parameters, how.shared, stream, nullptr, false,
                        how.extra);
}
NODES(KernelNode, KERNEL, const KernelNode *how, queue_kernel(*how, stream))
NODES_CHANGE(KernelNode, const KernelNode *how, queue_kernel(*how, stream))

NODES(MemcpyNode, COPY, const Copy3D *how, copy_volume(*how, stream, false))
NODES_CHANGE(MemcpyNode, const Copy3D *how, copy_volume(*how, stream, false))
NODES(MemcpyNode1D, COPY, void *to COMMA const void *from COMMA size_t bytes COMMA int direction,
      copy(to, from, bytes, direction, stream, false))
CALL(cudaGraphExecMemcpyNodeSetParams1D,
     (Graph * graph, Node *node, void *to, const void *from, size_t bytes, int direction),
     change(graph, node, [&](Stream *stream) { return copy(to, from, bytes, direction, stream, false); }))
NODES(MemcpyNodeToSymbol, COPY,
      const void *symbol COMMA const void *from COMMA size_t bytes COMMA size_t offset COMMA int direction,
      copy_symbol(true, symbol, offset, from, bytes, direction, stream, false))
NODES(MemcpyNodeFromSymbol, COPY,
      void *to COMMA const void *symbol COMMA size_t bytes COMMA size_t offset COMMA int direction,
      copy_symbol(false, symbol, offset, to, bytes, direction, stream, false))

struct FillNode { // cudaMemsetParams
    void *at;
    size_t pitch;
    unsigned value, element;
    size_t width, height; // the width in elements, the height in rows
};
static Status queue_fill(const FillNode &how, Stream *stream) {
    if (how.element != 1 && how.element != 2 && how.element != 4)
        return INVALID_VALUE;
    if (how.width == 0 || how.height == 0)
        return SUCCESS;
    size_t bytes = how.width * how.element;
    if (Status status = check_device(how.at, (how.height - 1) * how.pitch + bytes, "writes"))
        return status;
    return fill(Address(how.at), how.pitch, &how.value, how.element, how.width, how.height, stream);
}
NODES(MemsetNode, FILL, const FillNode *how, queue_fill(*how, stream))
NODES_CHANGE(MemsetNode, const FillNode *how, queue_fill(*how, stream))

struct HostNode { // cudaHostNodeParams
    void (*function)(void *);
    void *data;
};
static Status queue_host(HostNode how, Stream *stream) {
    return queue(find_handle(stream), HOST_CALL, [=](double *) -> Status { return how.function(how.data), SUCCESS; });
}
NODES(HostNode, HOST_CALL, const HostNode *how, queue_host(*how, stream))
NODES_CHANGE(HostNode, const HostNode *how, queue_host(*how, stream))

static Status queue_child(Graph *child, Stream *stream) {
    Graph *ordered;
    if (Status status = copy_graph(&ordered, child, true))
        return status;
    Work work = work_of_graph(*ordered, context());
    live<Graph>.erase(ordered);
    return queue(find_handle(stream), work);
}
NODES(ChildGraphNode, CHILD, Graph *child, queue_child(child, stream))
NODES(EventRecordNode, RECORD_EVENT, Event *event, record(event, stream))
NODES(EventWaitNode, WAIT_EVENT, Event *event, (void(stream), find_handle(event) ? SUCCESS : INVALID_HANDLE))
CALL(cudaGraphAddEmptyNode, (Node * *made, Graph *graph, Node *const *before, size_t count),
     add(made, graph, before, count, EMPTY, [](Stream *) { return SUCCESS; }))

struct AllocationNode { // cudaMemAllocNodeParams
    char pool[88];
    const void *access;
    size_t accesses, bytes;
    void *place;
};
NODES(MemAllocNode, ALLOCATE, AllocationNode *how, allocate_in_order(&how->place, how->bytes, stream))
NODES(MemFreeNode, FREE, void *pointer, free_in_order(pointer, stream))

// Conditional nodes: the handle of a condition is the address of its value, 4 bytes of device memory.
static Status make_condition(Address *made, Graph *graph, unsigned value, unsigned flags) {
    if (!find_handle(graph))
        return INVALID_VALUE;
    if (Status status = allocate(made, sizeof value, DEVICE))
        return status;
    memory_at(*made)->of_graph = true;
    auto set = [=, at = host_of(*made, sizeof value)](double *) { return memcpy(at, &value, sizeof value), SUCCESS; };
    if (flags & 1) // each launch of the graph sets the value
        graph->first.push_back(Work{set, nullptr, 0, FILL});
    return SUCCESS;
}
CALL(cudaGraphConditionalHandleCreate, (Address * made, Graph *graph, unsigned value, unsigned flags),
     make_condition(made, graph, value, flags))

struct Condition { // cudaConditionalNodeParams
    Address value;
    enum : int { IF, WHILE, SWITCH } type;
    unsigned size;
    Graph **bodies;
};
static Status queue_condition(Condition &how, Stream *stream) {
    auto *value = (const unsigned *)host_of(how.value, sizeof(unsigned));
    if (!value || how.type < Condition::IF || how.type > Condition::SWITCH || !how.size)
        return INVALID_VALUE;
    auto bodies = std::make_shared<std::vector<Graph *>>(how.size);
    for (Graph *&body : *bodies)
        body = add_handle(new Graph);
    how.bodies = bodies->data();
    return queue(find_handle(stream), CONDITIONAL, [=, type = how.type, in = context()](double *time) -> Status {
        while (true) {
            if (Status status = finish_launches(in))
                return status;
            size_t body = type == Condition::SWITCH ? *value : !*value; // body 1 of IF runs if the condition is false
            Graph *ordered;
            if (body >= bodies->size())
                return SUCCESS;
            if (Status status = copy_graph(&ordered, (*bodies)[body], true))
                return status;
            Status status = work_of_graph(*ordered, in).run(time);
            live<Graph>.erase(ordered);
            if (status || type != Condition::WHILE)
                return status;
        }
    });
}

struct AnyNode { // cudaGraphNodeParams
    int type, zeros[3];
    union {
        KernelNode kernel;
        struct {
            int zeros[4];
            Copy3D how;
        } copy;
        FillNode fill;
        HostNode host;
        Graph *child;
        Event *event;
        AllocationNode allocation;
        void *pointer;
        Condition condition;
    } of;
};
static Status queue_node(AnyNode &how, Stream *stream) {
    switch (how.type) {
    case KERNEL: return queue_kernel(how.of.kernel, stream);
    case COPY: return copy_volume(how.of.copy.how, stream, false);
    case FILL: return queue_fill(how.of.fill, stream);
    case HOST_CALL: return queue_host(how.of.host, stream);
    case CHILD: return queue_child(how.of.child, stream);
    case EMPTY: return SUCCESS;
    case WAIT_EVENT: return find_handle(how.of.event) ? SUCCESS : INVALID_HANDLE;
    case RECORD_EVENT: return record(how.of.event, stream);
    case ALLOCATE: return allocate_in_order(&how.of.allocation.place, how.of.allocation.bytes, stream);
    case FREE: return free_in_order(how.of.pointer, stream);
    case CONDITIONAL: return queue_condition(how.of.condition, stream);
    default: return missing("cudaGraphAddNode of an external semaphore");
    }
}
static Status add_node(Node **made, Graph *graph, Node *const *before, size_t count, AnyNode *how) {
    return add(made, graph, before, count, NodeType(how->type),
               [&](Stream *stream) { return queue_node(*how, stream); });
}
// In CUDA 13 the first call has a further parameter, as the second one has in CUDA 12: data of the edges.
CALL(cudaGraphAddNode, (Node * *made, Graph *graph, Node *const *before, const void *data, size_t count, AnyNode *how),
     is_runtime_12() ? add_node(made, graph, before, size_t(data), (AnyNode *)count)
                     : add_node(made, graph, before, count, how))
CALL(cudaGraphAddNode_v2, (Node * *made, Graph *graph, Node *const *before, const void *, size_t count, AnyNode *how),
     add_node(made, graph, before, count, how))

static Status capture_to(Stream *handle, Graph *graph, Node *const *before, size_t count) {
    if (!find_handle(graph))
        return INVALID_VALUE;
    if (Status status = begin_capture(handle))
        return status;
    handle->target = graph, handle->before.assign(before, before + count);
    return SUCCESS;
}
CALL_PTSZ(cudaStreamBeginCaptureToGraph,
          (Stream * stream, Graph *graph, Node *const *before, const void *, size_t count, int),
          capture_to(stream, graph, before, count))

// Edges -------------------------------------------------------------------------------------------------------------

// Copy a list to the program as CUDA does. If `to` is null, only return the length of the list.
template <class T> static Status copy_list(const std::vector<T> &list, T *to, size_t *count) {
    if (to)
        std::copy(list.begin(), list.begin() + std::ptrdiff_t(std::min(*count, list.size())), to);
    *count = list.size();
    return SUCCESS;
}
static Status copy_nodes(Graph *graph, Node **to, size_t *count, bool roots) {
    if (!find_handle(graph))
        return INVALID_HANDLE;
    std::vector<Node *> nodes;
    for (auto &node : graph->nodes)
        if (!roots || node->before.empty())
            nodes.push_back(node.get());
    return copy_list(nodes, to, count);
}
CALL(cudaGraphGetNodes, (Graph * graph, Node **to, size_t *count), copy_nodes(graph, to, count, false))
CALL(cudaGraphGetRootNodes, (Graph * graph, Node **to, size_t *count), copy_nodes(graph, to, count, true))
CALL(cudaGraphNodeGetType, (Node * node, int *type), (*type = node->work.type, SUCCESS))

// In CUDA 13 these calls have a further parameter: data of the edges, before the number of edges.
static Status change_edges(Node *const *from, Node *const *to, size_t count, bool wanted) {
    for (size_t i = 0; i < count; i++) {
        auto &before = to[i]->before;
        before.erase(std::remove(before.begin(), before.end(), from[i]), before.end());
        if (wanted)
            before.push_back(from[i]);
    }
    return SUCCESS;
}
#define EDGES(suffix, plain, wanted)                                                                                   \
    CALL(cudaGraph##suffix, (Graph *, Node *const *from, Node *const *to, const void *data, size_t count),             \
         change_edges(from, to, plain ? size_t(data) : count, wanted))
EDGES(AddDependencies, is_runtime_12(), true)
EDGES(AddDependencies_v2, false, true)
EDGES(RemoveDependencies, is_runtime_12(), false)
EDGES(RemoveDependencies_v2, false, false)
CALL(cudaGraphNodeGetDependencies, (Node * node, Node **to, void *data, size_t *count),
     copy_list(node->before, to, is_runtime_12() ? (size_t *)data : count))
CALL(cudaGraphNodeGetDependencies_v2, (Node * node, Node **to, void *, size_t *count),
     copy_list(node->before, to, count))

static Status copy_edges(Graph *graph, Node **from, Node **to, size_t *count) {
    if (!find_handle(graph))
        return INVALID_HANDLE;
    std::vector<Node *> first, second;
    for (auto &node : graph->nodes)
        for (Node *source : node->before)
            first.push_back(source), second.push_back(node.get());
    size_t room = *count;
    copy_list(first, from, &room);
    return copy_list(second, to, count);
}
CALL(cudaGraphGetEdges, (Graph * graph, Node **from, Node **to, void *data, size_t *count),
     copy_edges(graph, from, to, is_runtime_12() ? (size_t *)data : count))
CALL(cudaGraphGetEdges_v2, (Graph * graph, Node **from, Node **to, void *, size_t *count),
     copy_edges(graph, from, to, count))

static Status destroy_node(Node *gone) {
    for (auto &[graph, kept] : live<Graph>)
        for (size_t i = 0; i < graph->nodes.size(); i++)
            if (graph->nodes[i].get() == gone) {
                for (auto &node : graph->nodes)
                    node->before.erase(std::remove(node->before.begin(), node->before.end(), gone), node->before.end());
                graph->nodes.erase(graph->nodes.begin() + std::ptrdiff_t(i));
                return SUCCESS;
            }
    return INVALID_VALUE;
}
CALL(cudaGraphDestroyNode, (Node * node), destroy_node(node))
CALL(cudaGraphNodeFindInClone, (Node * *found, Node *node, Graph *clone),
     (*found = node_of(clone, node)) ? SUCCESS : INVALID_VALUE)

// Update an executable graph: it gets the work of another graph that has the same nodes and edges.
struct UpdateResult { // cudaGraphExecUpdateResultInfo
    int result;
    Node *node, *from;
};
static Status update(Graph *ready, Graph *graph, UpdateResult *result) {
    Graph *ordered;
    *result = {};
    if (!find_handle(ready))
        return INVALID_HANDLE;
    if (Status status = copy_graph(&ordered, graph, true))
        return status;
    bool same = ordered->nodes.size() == ready->nodes.size();
    for (size_t i = 0; same && i < ready->nodes.size(); i++)
        same = ordered->nodes[i]->work.type == ready->nodes[i]->work.type;
    if (same)
        ready->nodes = ordered->nodes;
    live<Graph>.erase(ordered);
    result->result = same ? 0 : 2; // cudaGraphExecUpdateErrorTopologyChanged
    return same ? SUCCESS : UPDATE_FAILED;
}
CALL(cudaGraphExecUpdate, (Graph * ready, Graph *graph, UpdateResult *result), update(ready, graph, result))

} // namespace programs
