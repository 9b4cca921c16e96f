package snapshot

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// systemMemory is what the system lets this process take yet, in bytes, and
// what sets that limit; MaxInt64 for no limit.
func systemMemory() (left int64, name string) {
	left = math.MaxInt64
	take := func(n int64, what string) {
		if n = max(n, 0); n < left {
			left, name = n, what
		}
	}
	var pages [7]int64 // size, resident, shared, text, lib, data, dirty
	text, _ := os.ReadFile("/proc/self/statm")
	for i, f := range strings.Fields(string(text)) {
		if i < len(pages) {
			pages[i], _ = strconv.ParseInt(f, 10, 64)
		}
	}
	page := int64(os.Getpagesize())
	for _, l := range []struct {
		resource int
		used     int64
		name     string
	}{{unix.RLIMIT_AS, pages[0], "ulimit -v"}, {unix.RLIMIT_DATA, pages[5], "ulimit -d"}} {
		var r unix.Rlimit
		if unix.Getrlimit(l.resource, &r) == nil && r.Cur < math.MaxInt64 {
			take(int64(r.Cur)-l.used*page, l.name)
		}
	}
	cgroupMemory(take)
	return left, name
}

// cgroupMemory tells take what the control groups of this process leave, in
// version 2 and 1 of their file system.
func cgroupMemory(take func(int64, string)) {
	text, _ := os.ReadFile("/proc/self/cgroup")
	for _, line := range strings.Split(string(text), "\n") {
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 {
			continue
		}
		root, most, now := "/sys/fs/cgroup", "memory.max", "memory.current"
		if f[1] != "" {
			if f[1] != "memory" {
				continue
			}
			root, most, now = "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
		}
		// In a container the path can be one that only its host knows: the root
		// is looked at in any case.
		for dir := filepath.Join(root, f[2]); ; dir = filepath.Dir(dir) {
			limit, err := number(filepath.Join(dir, most))
			used, err2 := number(filepath.Join(dir, now))
			if err == nil && err2 == nil && limit < 1<<60 {
				take(limit-used, "the control group")
			}
			if len(dir) <= len(root) {
				break
			}
		}
	}
}

func number(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}
