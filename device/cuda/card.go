package cuda

// Card is one GPU as the driver lists it.
type Card struct {
	Index       int    `json:"index"`
	Name        string `json:"name"`
	UUID        string `json:"uuid"`
	Capability  string `json:"capability"` // compute capability, such as "9.0"
	MemoryBytes int64  `json:"memory_bytes"`
	Processors  int    `json:"multiprocessors"`
}

// Memory is how a card's memory is spent, in bytes.
type Memory struct {
	TotalBytes    int64 `json:"total_bytes"`
	UsedBytes     int64 `json:"used_bytes"`     // by everyone, as the driver counts
	ReservedBytes int64 `json:"reserved_bytes"` // by this device's allocator
	// OtherBytes is the rest of what is used. Where the driver says how much of
	// it is this process's, it is divided into the context, loaded kernels and
	// libraries, and other processes.
	OtherBytes     int64  `json:"other_bytes"`
	LibrariesBytes *int64 `json:"context_and_libraries_bytes"`
	ProcessesBytes *int64 `json:"other_processes_bytes"`
}

// Environment is a device and what it runs on. Versions are those of the
// libraries that were loaded.
type Environment struct {
	Driver       string `json:"driver"` // empty where it is not known
	CUDA         string `json:"cuda"`   // the newest that the driver runs
	CUBLAS       string `json:"cublas"`
	NVRTC        string `json:"nvrtc"`
	Card         Card   `json:"card"`
	Architecture string `json:"architecture"` // that kernels are compiled for
	KernelCache  string `json:"kernel_cache"`
	Memory       Memory `json:"memory"`
	Cards        []Card `json:"cards"`
}
