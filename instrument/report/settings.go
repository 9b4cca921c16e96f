package report

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// Settings are a report's settings: an experiment's own and what every command
// has. As JSON they are one object, the own settings first.
type Settings struct {
	// Own are the experiment's, encoded as a JSON object.
	Own any
	// Allocator are the allocator's.
	Allocator AllocatorSettings
	// Sources says where each setting came from, by its name on the command
	// line with underscores for dashes: [FromFlag], [FromDefault], [FromSaved]
	// or the name of an environment variable.
	Sources map[string]string
}

// Sources of a setting other than an environment variable.
const (
	FromFlag    = "flag"
	FromDefault = "default"
	FromSaved   = "saved training"
)

// AllocatorSettings are the allocator's settings of a run, by PyTorch's names.
type AllocatorSettings struct {
	// AllocConf is the text that they were given by, as in
	// PYTORCH_CUDA_ALLOC_CONF; the others are what it came to on the device.
	AllocConf                  string  `json:"alloc_conf"`
	ExpandableSegments         bool    `json:"expandable_segments"`
	MaxSplitBytes              int64   `json:"max_split_size_bytes"` // 0: any block is split
	MaxNonSplitRoundingBytes   int64   `json:"max_non_split_rounding_bytes"`
	RoundupPower2Divisions     []int   `json:"roundup_power2_divisions"` // from sizes of 2^i MiB on; empty: none
	GarbageCollectionThreshold float64 `json:"garbage_collection_threshold"`
	LimitBytes                 int64   `json:"limit_bytes"` // of reserved memory; 0: no limit
}

// NewAllocatorSettings are the settings of an allocator, given by a text.
func NewAllocatorSettings(conf string, c alloc.Config) AllocatorSettings {
	s := AllocatorSettings{AllocConf: conf, ExpandableSegments: c.ExpandableSegments, MaxSplitBytes: c.MaxSplitBytes,
		MaxNonSplitRoundingBytes: c.MaxNonSplitRoundingBytes, RoundupPower2Divisions: []int{},
		GarbageCollectionThreshold: c.GarbageCollectionThreshold, LimitBytes: c.LimitBytes}
	if c.RoundupPower2Divisions != [alloc.RoundupIntervals]int{} {
		s.RoundupPower2Divisions = c.RoundupPower2Divisions[:]
	}
	return s
}

// MarshalJSON writes the own settings, then "allocator" and "sources".
func (s Settings) MarshalJSON() ([]byte, error) {
	own := []byte("{}")
	if s.Own != nil {
		var err error
		if own, err = json.Marshal(s.Own); err != nil {
			return nil, err
		}
	}
	own = bytes.TrimSpace(own)
	if len(own) < 2 || own[0] != '{' {
		return nil, fmt.Errorf("settings are no object: %.40s", own)
	}
	rest, err := json.Marshal(struct {
		Allocator AllocatorSettings `json:"allocator"`
		Sources   map[string]string `json:"sources,omitempty"`
	}{s.Allocator, s.Sources})
	if err != nil {
		return nil, err
	}
	if inside := bytes.TrimSpace(own[1 : len(own)-1]); len(inside) > 0 {
		rest = append(append(append([]byte("{"), inside...), ','), rest[1:]...)
	}
	return rest, nil
}

// describe is a line about an allocator that is not as by default, or empty.
func (s Settings) describe() string {
	var text string
	if a := s.Allocator; a.AllocConf != "" {
		text = a.AllocConf + from(s.Sources["alloc_conf"])
	}
	if n := s.Allocator.LimitBytes; n > 0 {
		if text != "" {
			text += "; "
		}
		text += "limit " + show.Bytes(n, true) + from(s.Sources["limit_bytes"])
	}
	return text
}

func from(source string) string {
	if source == "" {
		return ""
	}
	return " (" + source + ")"
}
