package device_test

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
)

func block(t *testing.T, d device.Device, s device.Spec) (device.Tensor, *alloc.Block) {
	t.Helper()
	b, err := d.Allocator().Malloc(s.Bytes(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return device.Tensor{Spec: s, Addr: b.Addr()}, b
}

func TestCPUMemoryHoldsWhatIsUploaded(t *testing.T) {
	d := device.NewCPU(alloc.Config{})
	defer d.Close()
	x, b := block(t, d, device.Spec{DType: device.Float32, Shape: []int{3, 5}})
	src := make([]byte, x.Bytes())
	for i := range src {
		src[i] = byte(i)
	}
	if err := d.Upload(x, src); err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, len(src))
	if err := d.Download(dst, x); err != nil || !bytes.Equal(src, dst) {
		t.Errorf("downloaded %v, %v", dst, err)
	}
	if n := len(x.Float32s()); n != 15 {
		t.Errorf("%d elements, want 15", n)
	}
	for _, err := range []error{d.Upload(x, src[1:]), d.Download(dst[1:], x)} {
		if err == nil || !strings.Contains(err.Error(), "59 bytes given, it has 60") {
			t.Errorf("a wrong size: %v", err)
		}
	}
	d.Allocator().Free(b)
}

func TestCPURefusesMoreThanTheMachineHas(t *testing.T) {
	d := device.NewCPU(alloc.Config{})
	defer d.Close()
	memory := d.Info().MemoryBytes
	if memory == nil {
		t.Skip("this machine's memory is not known")
	}
	if _, err := d.Allocator().Malloc(*memory+1, 0, 0); !errors.Is(err, alloc.ErrOutOfMemory) {
		t.Errorf("%d bytes: %v, want out of memory", *memory+1, err)
	}
	if n := d.Allocator().Stats().Reserved.Current; n != 0 {
		t.Errorf("%d bytes are reserved after the refusal", n)
	}
}

func TestCPUGivesSegmentsBack(t *testing.T) {
	d := device.NewCPU(alloc.Config{})
	_, b := block(t, d, device.Spec{DType: device.Uint8, Shape: []int{30 << 20}})
	d.Allocator().Free(b)
	if err := d.Allocator().EmptyCache(); err != nil {
		t.Fatal(err)
	}
	if n := d.Allocator().Stats().Reserved.Current; n != 0 {
		t.Errorf("%d bytes are reserved after emptying the cache", n)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestCPUNamesTheKernelThatFails(t *testing.T) {
	d := device.NewCPU(alloc.Config{})
	defer d.Close()
	if err := d.Run(&device.Call{Kernel: "nothing"}); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("a call without a kernel: %v", err)
	}
	failing := &device.Call{Kernel: "failing", Host: func(*device.Call) error { return errors.New("broken") }}
	if err := d.Run(failing); err == nil || err.Error() != "failing: broken" {
		t.Errorf("a failing kernel: %v", err)
	}
}

func TestMetaHasNoValues(t *testing.T) {
	d := device.NewMeta(alloc.Config{})
	x, _ := block(t, d, device.Spec{DType: device.Float64, Shape: []int{1 << 20, 1 << 20}}) // 8 TiB
	if err := d.Download(nil, x); err == nil {
		t.Error("meta gave values")
	}
	ran := false
	if err := d.Run(&device.Call{Host: func(*device.Call) error { ran = true; return nil }}); err != nil || ran {
		t.Errorf("meta computed: %v", err)
	}
	if d.Info().MemoryBytes != nil || d.Info().Kind != device.KindMeta {
		t.Errorf("info %+v", d.Info())
	}
}

// TestParallelCoversEachIndexOnce checks every split of a range, for several
// numbers of processors.
func TestParallelCoversEachIndexOnce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range []int{1, 2, 5} {
		runtime.GOMAXPROCS(procs)
		for n := range 40 {
			for grain := range 12 {
				seen := make([]atomic.Int32, n)
				device.Parallel(n, grain, func(lo, hi int) {
					for i := lo; i < hi; i++ {
						seen[i].Add(1)
					}
				})
				for i := range seen {
					if c := seen[i].Load(); c != 1 {
						t.Fatalf("%d processors, n %d, grain %d: index %d was visited %d times", procs, n, grain, i, c)
					}
				}
			}
		}
	}
}

func TestSpecSizes(t *testing.T) {
	for _, c := range []struct {
		spec  device.Spec
		bytes int64
		text  string
	}{
		{device.Spec{DType: device.Float32}, 4, "float32[]"},
		{device.Spec{DType: device.BFloat16, Shape: []int{2, 3}}, 12, "bfloat16[2 3]"},
		{device.Spec{DType: device.Int64, Shape: []int{0, 3}}, 0, "int64[0 3]"},
	} {
		if c.spec.Bytes() != c.bytes || c.spec.String() != c.text {
			t.Errorf("%v has %d bytes, want %s with %d", c.spec, c.spec.Bytes(), c.text, c.bytes)
		}
	}
}
