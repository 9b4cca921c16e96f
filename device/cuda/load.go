//go:build gpu

package cuda

/*
#cgo LDFLAGS: -lcuda -lnvrtc -ldl
#include "driver.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"github.com/tidemark-lab/tidemark/device"
)

// library is one of CUDA's, opened once while the program runs.
type library struct {
	once  sync.Once
	names []string // in the order tried
	load  func(path *C.char) *C.char
	path  string // what was opened
	err   error
}

var (
	driverLibrary = library{
		names: []string{"libcuda.so.1"},
		load:  func(p *C.char) *C.char { return C.tidemark_load_driver(p) },
	}
	nvrtcLibrary = library{
		names: []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"},
		load:  func(p *C.char) *C.char { return C.tidemark_load_nvrtc(p) },
	}
	blasLibrary = library{
		names: []string{"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"},
		load:  func(p *C.char) *C.char { return C.tidemark_load_blas(p) },
	}
)

// open finds the library where the loader looks (LD_LIBRARY_PATH, ldconfig),
// then in the usual places.
func (l *library) open() error {
	l.once.Do(func() {
		var first error
		for _, name := range l.names {
			for _, path := range candidates(name) {
				p := C.CString(path)
				message := l.load(p)
				C.free(unsafe.Pointer(p))
				if message == nil {
					l.path = path
					return
				}
				if first == nil {
					first = errors.New(strings.TrimSpace(C.GoString(message)))
				}
				C.free(unsafe.Pointer(message))
			}
		}
		l.err = fmt.Errorf("%s cannot be loaded: %w", l.names[0], first)
	})
	return l.err
}

// candidates are the paths to try for a library: its bare name, for the
// loader's own search, and the files of that name in the usual places.
func candidates(name string) []string {
	paths := []string{name}
	var folders []string
	for _, v := range []string{"CUDA_HOME", "CUDA_PATH"} {
		if home := os.Getenv(v); home != "" {
			folders = append(folders, filepath.Join(home, "lib64"), filepath.Join(home, "lib"))
		}
	}
	folders = append(folders, "/usr/local/cuda/lib64", "/opt/cuda/lib64", "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64")
	if more, err := filepath.Glob("/usr/local/cuda-*/lib64"); err == nil {
		folders = append(folders, more...)
	}
	if env := os.Getenv("VIRTUAL_ENV"); env != "" {
		if more, err := filepath.Glob(filepath.Join(env, "lib/python3*/site-packages/nvidia/*/lib")); err == nil {
			folders = append(folders, more...)
		}
	}
	for _, f := range folders {
		if p := filepath.Join(f, name); exists(p) {
			paths = append(paths, p)
		}
	}
	return paths
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

var (
	initOnce sync.Once
	initErr  error
)

// initialise loads the driver and starts it. Its error wraps device.ErrAbsent.
func initialise() error {
	initOnce.Do(func() {
		if err := driverLibrary.open(); err != nil {
			initErr = fmt.Errorf("no NVIDIA driver: %w: %w", err, device.ErrAbsent)
			return
		}
		if err := result(C.tidemark_init()); err != nil {
			initErr = fmt.Errorf("starting the NVIDIA driver: %w: %w", err, device.ErrAbsent)
		}
	})
	return initErr
}
