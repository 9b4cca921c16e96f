package harness

// Document is one of those whose claims the scenarios test.
type Document struct {
	Number string // such as D1; its claims are D1.1 and so on
	Title  string
}

// Documents lists them.
func Documents() []Document {
	return []Document{
		{"D1", "Visualize and understand GPU memory in PyTorch (a tutorial)"},
		{"D2", "A guide to the CUDA caching allocator"},
		{"D3", "Why does the memory peak exceed the estimate? (a measuring protocol)"},
		{"D4", "Deep learning on a GPU: the memory structure of training"},
	}
}
