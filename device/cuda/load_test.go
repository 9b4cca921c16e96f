//go:build gpu

package cuda

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOlderLibrary goes from one library to the next older one that is there.
func TestOlderLibrary(t *testing.T) {
	for _, v := range []string{"CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"} {
		t.Setenv(v, "")
	}
	var taken []string
	l := library{names: nvrtcLibrary.names, load: func(path string) string {
		if name := filepath.Base(path); name != "libnvrtc.so.12" {
			taken = append(taken, name)
			return ""
		}
		return path + ": cannot open shared object file: No such file or directory"
	}}
	if err := l.find(13000); err != nil {
		t.Fatal(err)
	}
	if !l.older() || l.older() || !slices.Equal(taken, []string{"libnvrtc.so.13", "libnvrtc.so.11.2"}) {
		t.Errorf("took %q", taken)
	}
}

// TestCompilerForOldCard compiles for a card that only an older NVRTC knows,
// where there are two, and for one that none knows. With TIDEMARK_NVRTC there
// must be two.
func TestCompilerForOldCard(t *testing.T) {
	skip := t.Skip
	if os.Getenv("TIDEMARK_NVRTC") != "" {
		skip = t.Fatal
	}
	newest, err := architectures()
	if err != nil {
		skip(err)
	}
	version, err := nvrtcVersion()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := nvrtcLibrary.find(0); err != nil {
			t.Error(err)
		}
	}()
	if known, err := findCompiler(1); err != nil || !slices.Equal(known, newest) {
		t.Errorf("a card of architecture 1: %v, %v; want what NVRTC %s knows", known, err, version)
	}
	if again, err := nvrtcVersion(); err != nil || again != version {
		t.Errorf("after that NVRTC %s is open, %v; want %s", again, err, version)
	}
	if slices.Contains(newest, 70) {
		skip("NVRTC", version, "knows sm_70 itself")
	}
	known, err := findCompiler(70)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(known, 70) {
		skip("there is no older NVRTC")
	}
	s := source{"cast", "-DREAL=float -DELEM=float -DFROM=float -DTO=bf16"}
	if code, err := s.compile("sm_70"); err != nil || len(code) == 0 {
		t.Errorf("%d bytes of code, %v", len(code), err)
	}
}

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
