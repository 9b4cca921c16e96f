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
