//go:build gpu

package cuda

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLibraryForDriver looks for cuBLAS among files of several versions, under
// drivers of several versions.
func TestLibraryForDriver(t *testing.T) {
	for _, v := range []string{"CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"} {
		t.Setenv(v, "")
	}
	for _, c := range []struct {
		there  string // files that can be loaded
		damage string // a file that cannot
		driver int
		want   string // what is taken
		err    string // part of the error
	}{
		{"libcublas.so.13 libcublas.so.12 libcublas.so.11", "", 13000, "libcublas.so.13", ""},
		{"libcublas.so.13 libcublas.so.12 libcublas.so.11", "", 0, "libcublas.so.13", ""},
		{"libcublas.so.13 libcublas.so.12 libcublas.so.11", "", 12040, "libcublas.so.12", ""},
		{"libcublas.so.13 libcublas.so.11", "", 12040, "libcublas.so.11", ""},
		{"libcublas.so.11", "", 14000, "libcublas.so.11", ""},
		{"libcublas.so.13 libcublas.so.12", "", 11080, "", "libcublas.so.13 is of CUDA 13, and the driver runs CUDA up to 11.8"},
		{"", "", 12040, "", "libcublas.so.13 or libcublas.so.12 or libcublas.so.11 cannot be loaded: no such file"},
		{"libcublas.so.13", "libcublas.so.12", 12040, "", "libcublas.so.12: file too short"},
		{"libcublas.so.12", "libcublas.so.13", 13000, "libcublas.so.12", ""},
	} {
		var taken string
		l := library{names: blasLibrary.names, load: func(path string) string {
			switch name := filepath.Base(path); {
			case slices.Contains(strings.Fields(c.there), name):
				taken = name
				return ""
			case name == c.damage:
				return path + ": file too short"
			}
			return path + ": cannot open shared object file: No such file or directory"
		}}
		err := l.find(c.driver)
		switch {
		case c.err == "" && (err != nil || taken != c.want):
			t.Errorf("%q, driver %d: took %q, %v; want %q", c.there, c.driver, taken, err, c.want)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%q, driver %d: error %v; want one line with %q", c.there, c.driver, err, c.err)
		}
	}
}
