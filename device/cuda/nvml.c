//go:build gpu

// NVML, the driver's library for management, is opened while the program runs.
// It knows the driver's version and what each process has of a card's memory.
#include "driver.h"

#include <dlfcn.h>
#include <unistd.h>

typedef struct nvmlDevice *nvml_device;

// nvmlProcessInfo_t of version 2, which nvmlDeviceGetComputeRunningProcesses_v3 fills.
struct nvml_process {
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
};

static struct {
	void *library;
	int (*init)(void);
	int (*driver_version)(char *, unsigned);
	int (*by_uuid)(const char *, nvml_device *);
	int (*processes)(nvml_device, unsigned *, struct nvml_process *);
} nvml;

static int nvml_open(void) {
	if (nvml.library) return 0;
	void *l = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!l) return 1;
	nvml.init = (int (*)(void))dlsym(l, "nvmlInit_v2");
	nvml.driver_version = (int (*)(char *, unsigned))dlsym(l, "nvmlSystemGetDriverVersion");
	nvml.by_uuid = (int (*)(const char *, nvml_device *))dlsym(l, "nvmlDeviceGetHandleByUUID");
	nvml.processes =
		(int (*)(nvml_device, unsigned *, struct nvml_process *))dlsym(l, "nvmlDeviceGetComputeRunningProcesses_v3");
	if (!nvml.init || !nvml.driver_version || !nvml.by_uuid || nvml.init()) {
		dlclose(l);
		return 1;
	}
	nvml.library = l;
	return 0;
}

int tidemark_driver_version(char *text, unsigned bytes) { return nvml_open() || nvml.driver_version(text, bytes); }

int tidemark_own_memory(const char *uuid, uint64_t *bytes) {
	enum { MOST = 256 };
	static struct nvml_process list[MOST];
	unsigned count = MOST, me = (unsigned)getpid();
	nvml_device d;
	if (nvml_open() || !nvml.processes || nvml.by_uuid(uuid, &d) || nvml.processes(d, &count, list)) return 1;
	for (unsigned i = 0; i < count && i < MOST; i++)
		if (list[i].pid == me && list[i].used != ~0ull) { // all ones: not known
			*bytes = list[i].used;
			return 0;
		}
	return 1;
}
