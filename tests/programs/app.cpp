// A program that loads the library in CUDA_INJECTION64_PATH as the CUDA driver does at its first call.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <unistd.h>

int main(int count, char **words) {
    const char *word = count > 1 ? words[1] : "";
    if (!std::strcmp(word, "none"))
        return 0;
    void *library = dlopen(std::getenv("CUDA_INJECTION64_PATH"), RTLD_NOW);
    reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"))();
    std::printf("on %s\n", std::getenv("CUDA_VISIBLE_DEVICES") ? std::getenv("CUDA_VISIBLE_DEVICES") : "all GPUs");
    std::fflush(stdout);
    if (!std::strcmp(word, "loop"))
        for (;;)
            pause();
    if (!std::strcmp(word, "abort"))
        std::abort();
    return !std::strcmp(word, "fail") ? 4 : 0;
}
