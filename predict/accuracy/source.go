package accuracy

import (
	"encoding/json"
	"fmt"
	"os"
)

// Source says how a file of recordings was made.
type Source struct {
	Torch        string `json:"torch"`
	Transformers string `json:"transformers"`
	CUDA         string `json:"cuda"`
	Card         string `json:"card"`
	Driver       string `json:"driver"`
	Date         string `json:"date"`
	SHA256       string `json:"sha256"` // of the file, in hexadecimal
}

// String names versions, card and date.
func (s Source) String() string {
	return fmt.Sprintf("PyTorch %s and transformers %s on an %s (driver %s, CUDA %s), recorded on %s",
		s.Torch, s.Transformers, s.Card, s.Driver, s.CUDA, s.Date)
}

// ReadSources reads reference/recorded.json: the source of every recorded
// file, by its path from the repository's root.
func ReadSources(path string) (map[string]Source, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("sources of the records: %w", err)
	}
	var m map[string]Source
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("sources of the records: %s: %w", path, err)
	}
	return m, nil
}
