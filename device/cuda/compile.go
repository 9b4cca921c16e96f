//go:build gpu

package cuda

// #include "driver.h"
import "C"

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"gorgonia.org/cu/nvrtc"
)

//go:embed kernels
var kernelFiles embed.FS

// source is one kernel file with its definitions: the unit of compilation.
type source struct {
	file    string // without folder and suffix
	defines string // for example "-DREAL=float", several separated by spaces
}

// sharedText is what files share whose names have the same first word.
var sharedText = map[string][]string{
	"random":    {"philox"},
	"attention": {"philox", "mask", "attention"},
	"mma":       {"philox", "mask", "mma"},
}

// text is the file after the common part, and after what files of its kind share.
func (s source) text() (string, error) {
	common, err := fs.ReadFile(kernelFiles, "kernels/common.cuh")
	if err != nil {
		return "", err
	}
	body, err := fs.ReadFile(kernelFiles, "kernels/"+s.file+".cu")
	if err != nil {
		return "", fmt.Errorf("no kernel file %q: %w", s.file, err)
	}
	text := string(common)
	family, _, _ := strings.Cut(s.file, "_")
	for _, name := range sharedText[family] {
		shared, err := fs.ReadFile(kernelFiles, "kernels/"+name+".cuh")
		if err != nil {
			return "", err
		}
		text += "#line 1 \"" + name + ".cuh\"\n" + string(shared)
	}
	return text + "#line 1 \"" + s.file + ".cu\"\n" + string(body), nil
}

// compile makes the machine code of a source for an architecture such as
// "sm_90".
func (s source) compile(architecture string) ([]byte, error) {
	text, err := s.text()
	if err != nil {
		return nil, err
	}
	if err := nvrtcLibrary.open(); err != nil {
		return nil, fmt.Errorf("compiling kernels needs NVRTC: %w", err)
	}
	p, err := nvrtc.CreateProgram(text, s.file+".cu")
	if err != nil {
		return nil, fmt.Errorf("kernel file %s: %w", s.file, err)
	}
	defer p.Destroy()
	options := append([]string{"--gpu-architecture=" + architecture, "--std=c++17"}, strings.Fields(s.defines)...)
	if err := p.Compile(options...); err != nil {
		log, _ := p.GetLog()
		return nil, fmt.Errorf("kernel file %s (%s) for %s: %w\n%s", s.file, s.defines, architecture, err,
			strings.TrimRight(log, "\x00\n"))
	}
	program := *(*unsafe.Pointer)(unsafe.Pointer(&p))
	var n C.size_t
	if r := C.tidemark_cubin_size(program, &n); r != 0 || n == 0 {
		return nil, fmt.Errorf("kernel file %s: NVRTC gives no machine code for %s (error %d)", s.file, architecture, int(r))
	}
	code := make([]byte, n)
	if r := C.tidemark_cubin(program, (*C.char)(unsafe.Pointer(&code[0]))); r != 0 {
		return nil, fmt.Errorf("kernel file %s: NVRTC error %d", s.file, int(r))
	}
	return code, nil
}

// nvrtcVersion is, for example, "13.0".
func nvrtcVersion() (string, error) {
	if err := nvrtcLibrary.open(); err != nil {
		return "", err
	}
	major, minor, err := nvrtc.Version()
	if err != nil {
		return "", fmt.Errorf("NVRTC's version: %w", err)
	}
	return fmt.Sprintf("%d.%d", major, minor), nil
}

// architectures are those that the loaded NVRTC compiles for, such as 75, 90.
func architectures() ([]int, error) {
	if err := nvrtcLibrary.open(); err != nil {
		return nil, err
	}
	var n C.int
	var list [256]C.int
	if r := C.tidemark_architectures(&n, &list[0], C.int(len(list))); r != 0 {
		return nil, fmt.Errorf("NVRTC's architectures: error %d", int(r))
	}
	var out []int
	for _, a := range list[:n] {
		out = append(out, int(a))
	}
	return out, nil
}

// findCompiler opens an NVRTC that compiles for an architecture, such as 70: the
// newest, or an older one where that no longer does. It returns the architectures
// that the one now open compiles for, which lack the one asked for when none does.
func findCompiler(architecture int) ([]int, error) {
	newest, err := architectures()
	if err != nil || slices.Contains(newest, architecture) {
		return newest, err
	}
	for nvrtcLibrary.older() {
		if known, err := architectures(); err == nil && slices.Contains(known, architecture) {
			return known, nil
		}
	}
	return newest, nvrtcLibrary.find(int(driverVersion.Load()))
}

// cached returns the machine code from the folder, compiling it when it is not
// there. The file's name is a hash of the text, the definitions, the
// architecture and NVRTC's version. A folder that cannot be written to only
// costs the compilation.
func (s source) cached(folder, architecture, version string) ([]byte, error) {
	text, err := s.text()
	if err != nil {
		return nil, err
	}
	h := sha256.Sum256([]byte(strings.Join([]string{text, s.defines, architecture, version}, "\x00")))
	path := filepath.Join(folder, s.file+"-"+hex.EncodeToString(h[:16])+".cubin")
	code, err := os.ReadFile(path)
	if err == nil && len(code) > 4 && string(code[:4]) == "\x7fELF" {
		return code, nil
	}
	if code, err = s.compile(architecture); err != nil {
		return nil, err
	}
	_ = keep(path, code)
	return code, nil
}

// keep writes a file by way of a temporary one, so that other processes never
// see half of it.
func keep(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".kernel-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// cacheFolder is where compiled kernels are kept by default.
func cacheFolder() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "tidemark", "kernels")
}
