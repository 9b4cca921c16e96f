package alloc

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// settings are the keys of PYTORCH_CUDA_ALLOC_CONF that ParseConfig applies.
var settings = map[string]func(c *Config, value string) error{
	"max_split_size_mb": func(c *Config, v string) (err error) {
		c.MaxSplitBytes, err = parseMiB(v, 21)
		return err
	},
	"max_non_split_rounding_mb": func(c *Config, v string) (err error) {
		c.MaxNonSplitRoundingBytes, err = parseMiB(v, 21)
		return err
	},
	"roundup_power2_divisions": parseDivisions,
	"garbage_collection_threshold": func(c *Config, v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || !(f > 0 && f < 1) {
			return fmt.Errorf("%q is not a number between 0 and 1", v)
		}
		c.GarbageCollectionThreshold = f
		return nil
	},
	"expandable_segments": func(c *Config, v string) error {
		on, ok := map[string]bool{"True": true, "true": true, "False": false, "false": false}[v]
		if !ok {
			return fmt.Errorf("%q is neither True nor False", v)
		}
		c.ExpandableSegments = on
		return nil
	},
	"large_segment_size_mb": func(c *Config, v string) (err error) {
		c.LargeSegmentBytes, err = parseMiB(v, ownSegment>>20)
		return err
	},
	"per_process_memory_fraction": func(c *Config, v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || !(f > 0 && f <= 1) {
			return fmt.Errorf("%q is not a number above 0 and up to 1", v)
		}
		c.MemoryFraction = f
		return nil
	},
	"backend": func(_ *Config, v string) error {
		switch v {
		case "native":
			return nil
		case "cudaMallocAsync":
			return errors.New("cudaMallocAsync leaves segments to CUDA's driver, so that reserved memory cannot be predicted; only native can")
		}
		return fmt.Errorf("%q is not supported, only native", v)
	},
}

// without are keys that PyTorch has and that do not bear on which memory is
// allocated: they are about pinned host memory, locking, addresses, and how an
// allocation fails that does not fit. ParseConfig accepts and ignores them.
var without = []string{"expandable_segments_reserve", "expandable_segments_reserve_by_class",
	"graph_capture_record_stream_reuse", "pinned_free_catch_all", "pinned_num_register_threads",
	"pinned_reserve_segment_size_mb", "pinned_use_background_threads", "pinned_use_cuda_host_register",
	"pinned_use_hip_host_register", "release_lock_on_cudamalloc", "release_lock_on_hipmalloc", "throw_on_cudamalloc_oom"}

// ParseConfig reads settings in the syntax of PYTORCH_CUDA_ALLOC_CONF, such as
// "max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:4]". Keys
// that do not bear on which memory is allocated are ignored; an unknown key is
// an error.
func ParseConfig(s string) (Config, error) {
	var c Config
	rest := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\r\n", r) {
			return -1
		}
		return r
	}, s)
	for rest != "" {
		entry := rest
		end := entryEnd(rest)
		if end < len(rest) {
			entry, rest = rest[:end], rest[end+1:]
		} else {
			rest = ""
		}
		if entry == "" {
			continue
		}
		key, value, ok := strings.Cut(entry, ":")
		if !ok || value == "" {
			return Config{}, fmt.Errorf("allocator setting %.80q is not of the form key:value", entry)
		}
		set := settings[key]
		if set == nil {
			if slices.Contains(without, key) {
				continue
			}
			known := append(slices.Sorted(maps.Keys(settings)), without...)
			return Config{}, fmt.Errorf("unknown allocator setting %.80q; known are %s", key, strings.Join(known, ", "))
		}
		if err := set(&c, value); err != nil {
			return Config{}, fmt.Errorf("allocator setting %s: %w", key, err)
		}
	}
	return c, nil
}

// entryEnd is the index of the first comma outside brackets, or len(s).
func entryEnd(s string) int {
	depth := 0
	for i, r := range s {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == ',' && depth <= 0:
			return i
		}
	}
	return len(s)
}

// parseMiB reads a whole number of MiB of at least least.
func parseMiB(s string, least int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < least || n > maxRequest>>20 {
		return 0, fmt.Errorf("%.80q is not a whole number of MiB from %d to %d", s, least, maxRequest>>20)
	}
	return n << 20, nil
}

// parseDivisions reads a power of two for all sizes, or a list of size:power,
// sizes being powers of two in MiB and rising, where ">" stands for all larger
// sizes. Sizes below the first of the list get the first one's divisions.
func parseDivisions(c *Config, v string) error {
	d := &c.RoundupPower2Divisions
	if !strings.HasPrefix(v, "[") {
		n, err := parsePower2(v)
		for i := range d {
			d[i] = n
		}
		return err
	}
	if !strings.HasSuffix(v, "]") {
		return fmt.Errorf("%.80q has no closing bracket", v)
	}
	last := -1
	for _, pair := range strings.Split(v[1:len(v)-1], ",") {
		size, power, ok := strings.Cut(pair, ":")
		if !ok {
			return fmt.Errorf("%.80q is not of the form MiB:divisions", pair)
		}
		n, err := parsePower2(power)
		if err != nil {
			return err
		}
		if size == ">" {
			for i := last + 1; i < len(d); i++ {
				d[i] = n
			}
			last = len(d) - 1
			continue
		}
		mib, err := parsePower2(size)
		if err != nil {
			return err
		}
		i := min(bits.Len(uint(mib))-1, len(d)-1)
		if i <= last {
			return fmt.Errorf("size %s does not follow a smaller one", size)
		}
		if last < 0 {
			for j := range i {
				d[j] = n
			}
		}
		d[i], last = n, i
	}
	return nil
}

func parsePower2(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 1<<20 || n&(n-1) != 0 {
		return 0, fmt.Errorf("%.80q is not a power of two", s)
	}
	return n, nil
}
