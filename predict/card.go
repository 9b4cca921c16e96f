// Package predict answers whether a training fits a card: it predicts the
// memory of a workload and of variations of it (package train does the
// predicting), and does the plain arithmetic of weights and key/value caches.
package predict

// Card is a graphics card.
type Card struct {
	Name string `json:"name"`
	// MemoryBytes is what the driver reports as its memory.
	MemoryBytes int64 `json:"memory_bytes"`
}

const (
	mib = 1 << 20
	gib = 1 << 30
)

// ContextBytes is what a CUDA context and its libraries' code take beside the
// allocator on a card of compute capability 9.0. It is assumed.
const ContextBytes = 600 * mib

// Cards are common cards, by memory, as nvidia-smi reports it.
func Cards() []Card {
	return []Card{
		{"RTX 4060 8 GB", 8188 * mib},
		{"RTX 3060 12 GB", 12288 * mib},
		{"RTX 4080 16 GB", 16376 * mib},
		{"RTX 4090 24 GB", 24564 * mib},
		{"RTX 5090 32 GB", 32607 * mib},
		{"A100 40 GB", 40960 * mib},
		{"L40S 48 GB", 46068 * mib},
		{"H100 80 GB", 81559 * mib},
		{"H200 141 GB", 143771 * mib},
		{"B200 192 GB", 183359 * mib},
	}
}

// Usable is what the allocator can have of a card.
func (c Card) Usable() int64 { return max(c.MemoryBytes-ContextBytes, 0) }
