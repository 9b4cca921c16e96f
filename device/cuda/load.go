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
	"sync/atomic"
	"unsafe"

	"github.com/tidemark-lab/tidemark/device"
)

// library is one of CUDA's, opened once while the program runs.
type library struct {
	once  sync.Once
	names []libraryName            // in the order tried
	load  func(path string) string // returns the loader's message, or ""
	at    int                      // which of the names is open
	err   error
}

// libraryName is a file's name and the major version of the CUDA that it comes
// with, 0 for the driver's.
type libraryName struct {
	file  string
	major int
}

var (
	driverLibrary = library{
		names: []libraryName{{"libcuda.so.1", 0}},
		load:  func(p string) string { return load(p, func(p *C.char) *C.char { return C.tidemark_load_driver(p) }) },
	}
	nvrtcLibrary = library{
		names: []libraryName{{"libnvrtc.so.13", 13}, {"libnvrtc.so.12", 12}, {"libnvrtc.so.11.2", 11}},
		load:  func(p string) string { return load(p, func(p *C.char) *C.char { return C.tidemark_load_nvrtc(p) }) },
	}
	blasLibrary = library{
		names: []libraryName{{"libcublas.so.13", 13}, {"libcublas.so.12", 12}, {"libcublas.so.11", 11}},
		load:  func(p string) string { return load(p, func(p *C.char) *C.char { return C.tidemark_load_blas(p) }) },
	}
)

// open finds the library where the loader looks (LD_LIBRARY_PATH, ldconfig),
// then in the usual places. A driver runs what is made by its own major version
// of CUDA and by older ones, so newer libraries are passed over.
func (l *library) open() error {
	l.once.Do(func() { l.err = l.find(int(driverVersion.Load())) })
	return l.err
}

// find is open for a driver that runs CUDA up to a version such as 12040, or 0
// when no driver was started.
func (l *library) find(driver int) error {
	var files []string
	var wrong error // with a file that is there, which says more than what is not
	for i, name := range l.names {
		if files = append(files, name.file); driver != 0 && name.major > driver/1000 {
			continue
		}
		for _, path := range candidates(name.file) {
			message := l.load(path)
			if message == "" {
				l.at = i
				return nil
			}
			if wrong == nil && !strings.HasPrefix(message, path+": cannot open shared object file") {
				wrong = errors.New(message)
			}
		}
	}
	for _, name := range l.names {
		for _, path := range candidates(name.file) {
			if wrong == nil && driver != 0 && name.major > driver/1000 && l.load(path) == "" {
				wrong = fmt.Errorf("%s is of CUDA %d, and the driver runs CUDA up to %d.%d", path, name.major,
					driver/1000, driver%1000/10)
			}
		}
	}
	if wrong == nil {
		wrong = errors.New("no such file where the loader looks, in CUDA_HOME, /usr/local/cuda* and VIRTUAL_ENV")
	}
	return fmt.Errorf("%s cannot be loaded: %w", strings.Join(files, " or "), wrong)
}

// older opens the next older library than the one that is open in its place, and
// reports whether there is one.
func (l *library) older() bool {
	for i := l.at + 1; i < len(l.names); i++ {
		for _, path := range candidates(l.names[i].file) {
			if l.load(path) == "" {
				l.at = i
				return true
			}
		}
	}
	return false
}

// load calls one of the C functions that load a library.
func load(path string, f func(*C.char) *C.char) string {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	message := f(p)
	if message == nil {
		return ""
	}
	defer C.free(unsafe.Pointer(message))
	return strings.TrimSpace(C.GoString(message))
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

// oldestDriver is the least version of CUDA that the driver must run, as
// cuDriverGetVersion counts.
const oldestDriver = 11080

var (
	initOnce      sync.Once
	initErr       error
	driverVersion atomic.Int64 // what the driver runs, 0 until it is started
)

// initialise loads the driver and starts it. Its error wraps device.ErrAbsent.
func initialise() error {
	initOnce.Do(func() {
		if err := driverLibrary.open(); err != nil {
			initErr = fmt.Errorf("no NVIDIA driver: %w: %w", err, device.ErrAbsent)
			return
		}
		var version C.int
		err := result(C.tidemark_init())
		if err == nil {
			err = result(C.cuDriverGetVersion(&version))
		}
		switch {
		case err != nil:
			initErr = fmt.Errorf("starting the NVIDIA driver: %w: %w", err, device.ErrAbsent)
		case version < oldestDriver:
			initErr = fmt.Errorf("the NVIDIA driver runs CUDA up to %d.%d, and 11.8 or newer is needed: %w",
				version/1000, version%1000/10, device.ErrAbsent)
		default:
			driverVersion.Store(int64(version))
		}
	})
	return initErr
}
