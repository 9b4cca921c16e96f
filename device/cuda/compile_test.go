//go:build gpu

package cuda

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device/kernel"
)

// headSizes are those that published models use, and ones that do not divide.
var headSizes = []int{4, 8, 32, 64, 80, 96, 128, 256}

// sources are the ways in which every kernel file is compiled.
func sources(t *testing.T) []source {
	t.Helper()
	files, err := fs.Glob(kernelFiles, "kernels/*.cu")
	if err != nil || len(files) == 0 {
		t.Fatalf("kernel files: %v, %v", files, err)
	}
	var out []source
	for _, f := range files {
		name := strings.TrimSuffix(path.Base(f), ".cu")
		for _, types := range []string{"-DREAL=float -DELEM=float", "-DREAL=double -DELEM=double", "-DREAL=float -DELEM=bf16"} {
			switch name {
			case "attention_shared", "attention_forward", "attention_backward":
				if name == "attention_shared" && strings.Contains(types, "bf16") {
					continue // it sums up in memory
				}
				for _, n := range headSizes {
					rows, cols := 64, 32
					if n > 128 {
						rows = 32
					}
					for _, o := range optionsOf(n) {
						out = append(out, source{name, fmt.Sprintf("%s -DHEAD=%d -DROWS=%d -DCOLS=%d", types, n, rows, cols) + o})
					}
				}
			case "mma_forward", "mma_backward_q", "mma_backward_kv":
				if !strings.Contains(types, "bf16") {
					continue
				}
				k := mmaKernelOf(t, name)
				for _, n := range headSizes {
					list := k.small
					if n > 64 {
						list = k.large
					}
					for _, tile := range list {
						if n%16 == 0 && n <= mmaHead {
							for _, o := range optionsOf(n) {
								out = append(out, source{name, types + " " + tile.defines(n) + o})
							}
						}
					}
				}
			case "cache":
				for _, n := range headSizes {
					out = append(out, source{name, fmt.Sprintf("%s -DHEAD=%d", types, n)})
				}
			case "cast":
				for _, to := range []string{"float", "double", "bf16"} {
					out = append(out, source{name, types + " -DFROM=" + strings.Fields(types)[1][len("-DELEM="):] + " -DTO=" + to})
				}
			default:
				out = append(out, source{name, types})
			}
		}
	}
	return out
}

// optionsOf are the definitions of attention's options that are compiled for a head
// size: none, and for one size all of them, and all but those that the others
// depend on.
func optionsOf(size int) []string {
	if size != 64 {
		return []string{""}
	}
	all := attentionShape{Attention: kernel.Attention{Window: 1, SoftCap: 1, Bidirectional: true, Dropout: kernel.Dropout{Probability: 0.5}}}
	causal, plain := all, all
	causal.Bidirectional = false
	plain.Window, plain.SoftCap = 0, 0
	return []string{"", all.options(), causal.options(), plain.options()}
}

// mmaKernelOf is the attention kernel on tensor cores in a file.
func mmaKernelOf(t *testing.T, file string) *mmaKernel {
	t.Helper()
	for _, k := range mmaKernels {
		if k.file == file {
			return k
		}
	}
	t.Fatalf("no launcher for the kernel file %s", file)
	return nil
}

// TestCompileKernels compiles every kernel for old and new architectures. It
// needs NVRTC but no card. Attention takes seconds for each size of heads: every
// size is compiled for one architecture and type, one size for the others. Short
// mode takes one size for two architectures, and fewer architectures. Where
// TIDEMARK_NVRTC gives a version, NVRTC must be there and of that version.
func TestCompileKernels(t *testing.T) {
	want := os.Getenv("TIDEMARK_NVRTC")
	if want != "" {
		nvrtcLibrary.names = slices.DeleteFunc(slices.Clone(nvrtcLibrary.names), func(n libraryName) bool {
			return !strings.HasPrefix(want, fmt.Sprint(n.major, "."))
		})
	}
	version, err := nvrtcVersion()
	if want != "" && version != want {
		t.Fatalf("NVRTC %s was found (%v), and %s is wanted", version, err, want)
	}
	if err != nil {
		t.Skip(err)
	}
	known, err := architectures()
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[int]bool{70: true, 80: true, 90: true, known[0]: true, known[len(known)-1]: true}
	for _, a := range known {
		if !wanted[a] || testing.Short() && a == 80 {
			continue
		}
		for _, s := range sources(t) {
			one, float := strings.Contains(s.defines, "HEAD=64 "), strings.Contains(s.defines, "ELEM=float")
			mma := strings.HasPrefix(s.file, "mma")
			switch {
			case mma && a < 80:
				continue // these need the tensor cores of 8.0
			case mma && !(one || a == 90 && !testing.Short()):
				continue
			case !strings.HasPrefix(s.file, "attention"):
			case testing.Short() && !(one && float && (a == 70 || a == 90)):
				continue
			case !one && !(float && a == 90):
				continue
			}
			t.Run(fmt.Sprintf("sm_%d/%s %s", a, s.file, s.defines), func(t *testing.T) {
				code, err := s.compile(fmt.Sprintf("sm_%d", a))
				if err != nil {
					t.Error(err)
				} else if len(code) < 4 || string(code[:4]) != "\x7fELF" {
					t.Errorf("%v: NVRTC %s gave %d bytes that are not machine code", s, version, len(code))
				}
			})
		}
	}
}

func TestKernelCache(t *testing.T) {
	version, err := nvrtcVersion()
	if err != nil {
		t.Skip(err)
	}
	folder := path.Join(t.TempDir(), "a", "b")
	s := source{"cast", "-DREAL=float -DELEM=float -DFROM=float -DTO=bf16"}
	first, err := s.cached(folder, "sm_90", version)
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(folder)
	if err != nil || len(files) != 1 {
		t.Fatalf("cache holds %v, %v; want one file", files, err)
	}
	// What is on disk is what comes back; a damaged file is compiled again.
	name := path.Join(folder, files[0].Name())
	marked := append([]byte(nil), first...)
	marked = append(marked, "mark"...)
	if err := os.WriteFile(name, marked, 0o644); err != nil {
		t.Fatal(err)
	}
	if again, err := s.cached(folder, "sm_90", version); err != nil || string(again) != string(marked) {
		t.Fatalf("the cached file was not used: %v", err)
	}
	if err := os.WriteFile(name, []byte("xx"), 0o644); err != nil {
		t.Fatal(err)
	}
	if again, err := s.cached(folder, "sm_90", version); err != nil || len(again) != len(first) {
		t.Fatalf("a damaged file: %d bytes, %v; want %d", len(again), err, len(first))
	}
	s.defines += " -DUNUSED"
	if _, err := s.cached(folder, "sm_90", version); err != nil {
		t.Fatal(err)
	}
	if files, _ = os.ReadDir(folder); len(files) != 2 {
		t.Fatalf("other definitions: cache holds %v, want two files", files)
	}
}
