// Modules: their kernels and variables.
#include "core.hpp"

#include <algorithm>

namespace programs {

static int next_module;

// Load a module. Each of its variables gets a slot. If some variables are managed, slots are chosen whose addresses are
// also valid in the host process.
Status load(Module **made, const void *image, size_t bytes, bool managed) {
    static int next_low = 1;
    int slots = 0, &next = managed ? next_low : next_slot;
    std::unique_ptr<Module> module(new Module{next_module++, next, 0, context(), {}});
    if (Status status = callbacks.load(module->number, image, bytes, next, &slots))
        return status;
    module->slots = slots;
    for (int slot = next; slot < next + slots; slot++)
        reserved.insert(slot);
    next += slots;
    *made = add_handle(module.release());
    return SUCCESS;
}

void unload(Module *module) {
    for (auto &kernel : module->kernels)
        live<Kernel>.erase(kernel.second);
    for (int slot = module->first_slot; slot < module->first_slot + module->slots; slot++) {
        release(slot);
        reserved.erase(slot);
    }
    if (callable())
        callbacks.unload(module->number);
    live<Module>.erase(module);
}

Status find_kernel(Kernel **result, Module *module, const char *name) {
    if (!find_handle(module))
        return INVALID_HANDLE;
    Kernel *&kernel = module->kernels[name];
    if (!kernel) {
        std::unique_ptr<Kernel> made(new Kernel{module, name, {}, 0});
        if (Status status = callbacks.find(module->number, name, &made->function)) {
            module->kernels.erase(name);
            return status;
        }
        made->dynamic_shared = cards[context()->device].attributes[8] - made->function.attributes[1];
        kernel = add_handle(made.release());
    }
    *result = kernel;
    return SUCCESS;
}

Status find_variable(Address *address, size_t *bytes, Module *module, const char *name) {
    if (!find_handle(module))
        return INVALID_HANDLE;
    Address place;
    void *host;
    size_t size;
    if (Status status = callbacks.variable(module->number, name, &place, &host, &size))
        return status;
    memories.insert({int(place >> SLOT_BITS), Memory{(char *)host, size, module->context, VARIABLE, {}}});
    if (address)
        *address = place;
    if (bytes)
        *bytes = size;
    return SUCCESS;
}

Status kernel_attribute(int *value, int attribute, const Kernel *kernel) {
    if (attribute < 0 || attribute >= 16)
        return INVALID_VALUE;
    *value = attribute == 8 ? kernel->dynamic_shared : kernel->function.attributes[attribute];
    return SUCCESS;
}

Status set_kernel_attribute(Kernel *kernel, int attribute, int value) {
    if (attribute == 8) {
        int most = cards[context()->device].attributes[97] - kernel->function.attributes[1];
        if (value < 0 || value > most)
            return INVALID_VALUE;
        kernel->dynamic_shared = std::max(kernel->dynamic_shared, value);
    } else if (attribute == 14) {
        kernel->large_clusters = value;
    } else if (attribute != 9) { // 9 only asks for more shared memory in place of L1 cache, so it has no effect here
        return INVALID_VALUE;
    }
    return SUCCESS;
}

} // namespace programs
