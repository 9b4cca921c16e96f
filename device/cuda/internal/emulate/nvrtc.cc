// The run-time compiler of the emulated driver: a kernel file becomes a shared
// library, which takes the place of machine code for the card.
#include <nvrtc.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <unistd.h>

struct _nvrtcProgram {
    std::string text, code, log;
};

static std::string read_file(const std::string &path) {
    std::ifstream f(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(f), {});
}

static void write_file(const std::string &path, const std::string &text) {
    std::ofstream(path, std::ios::binary) << text;
}

static int run(const std::string &command) { return std::system(command.c_str()); }

extern "C" {

nvrtcResult nvrtcVersion(int *major, int *minor) {
    *major = 0; // apart from every real version in the cache of kernels
    *minor = 1;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetNumSupportedArchs(int *n) {
    *n = 1;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetSupportedArchs(int *archs) {
    archs[0] = 90;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *text, const char *, int, const char *const *,
                               const char *const *) {
    *program = new _nvrtcProgram{text, "", ""};
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
    delete *program;
    *program = nullptr;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int n, const char *const *options) {
    const char *home = getenv("TIDEMARK_EMULATE"), *cxx = getenv("CXX");
    if (!home) {
        program->log = "TIDEMARK_EMULATE must name the folder of emulate.h";
        return NVRTC_ERROR_COMPILATION;
    }
    std::string defines;
    for (int i = 0; i < n; i++)
        if (std::string(options[i]).rfind("-D", 0) == 0) defines += std::string(" '") + options[i] + "'";
    const char *temporary = getenv("TMPDIR");
    std::string base = std::string(temporary && *temporary ? temporary : P_tmpdir) + "/emulate-XXXXXX";
    if (!mkdtemp(base.data())) return NVRTC_ERROR_OUT_OF_MEMORY;
    std::string compiler = cxx ? cxx : "c++";
    write_file(base + "/kernel.cc", program->text);
    int failed = run(compiler + " -std=c++17 -E -P -I" + home + " -include emulate.h" + defines + " " + base +
                     "/kernel.cc -o " + base + "/all.cc 2>" + base + "/log");
    if (!failed) {
        // Each kernel gets a function that unpacks its parameters.
        std::string text = read_file(base + "/all.cc"), calls;
        std::regex kernel("extern \"C\"\\s+__attribute__\\(\\(used, visibility\\(\"default\"\\)\\)\\)\\s+void\\s+(\\w+)\\s*\\(");
        std::set<std::string> seen;
        for (std::sregex_iterator i(text.begin(), text.end(), kernel), end; i != end; ++i) {
            std::string name = (*i)[1];
            if (seen.insert(name).second)
                calls += "extern \"C\" void emulate_call_" + name + "(const char *p) { emulate_invoke(" + name + ", p); }\n";
        }
        write_file(base + "/all.cc", text + calls);
        failed = run(compiler + " -std=c++17 -O2 -w -shared -fPIC -fno-strict-aliasing " + base + "/all.cc -o " + base +
                     "/kernel.so 2>>" + base + "/log");
    }
    program->log = read_file(base + "/log");
    if (!failed) program->code = read_file(base + "/kernel.so");
    run("rm -r " + base);
    return failed ? NVRTC_ERROR_COMPILATION : NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *n) {
    *n = program->log.size() + 1;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log) {
    program->log.copy(log, program->log.size());
    log[program->log.size()] = 0;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *n) {
    *n = program->code.size();
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *code) {
    program->code.copy(code, program->code.size());
    return NVRTC_SUCCESS;
}
}
