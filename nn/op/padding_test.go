package op

import (
	"math"
	"runtime"
	"testing"
	"unsafe"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// TestCrossEntropyPadding has columns after the vocabulary that nothing reads and
// whose gradient is zero, whatever was in its memory.
func TestCrossEntropyPadding(t *testing.T) {
	const rows, vocabulary, columns = 3, 5, 8
	nan := float32(math.NaN())
	x, dx := make([]float32, rows*columns), make([]float32, rows*columns)
	for i := range x {
		x[i], dx[i] = float32(i%7)/4, nan
		if i%columns >= vocabulary {
			x[i] = nan
		}
	}
	var pinner runtime.Pinner // a tensor is an address: the slices must neither move with the stack nor go
	defer pinner.Unpin()
	tensor := func(v []float32, shape ...int) device.Tensor {
		pinner.Pin(&v[0])
		return device.Tensor{Spec: device.Spec{DType: device.Float32, Shape: shape}, Addr: uint64(uintptr(unsafe.Pointer(&v[0])))}
	}
	targets, count := []int32{0, 4, 2}, []int32{0}
	ints := func(v []int32) device.Tensor {
		pinner.Pin(&v[0])
		return device.Tensor{Spec: device.Spec{DType: device.Int32, Shape: []int{len(v)}}, Addr: uint64(uintptr(unsafe.Pointer(&v[0])))}
	}
	loss, lse, g := make([]float32, 1), make([]float32, rows), []float32{1}
	attributes := kernel.CrossEntropy{Rows: rows, Vocabulary: vocabulary, Columns: columns, Ignore: IgnoreIndex}
	err := crossEntropy[float32](&device.Call{In: []device.Tensor{tensor(x, rows, columns), ints(targets)},
		Out: []device.Tensor{tensor(loss), tensor(lse, rows), ints(count)}, Attributes: attributes})
	if err != nil || !(loss[0] > 0) {
		t.Fatalf("loss %v, %v", loss[0], err)
	}
	err = crossEntropyBackward[float32](&device.Call{In: []device.Tensor{tensor(x, rows, columns), ints(targets), tensor(g), tensor(lse, rows), ints(count)},
		Out: []device.Tensor{tensor(dx, rows, columns)}, Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	for r := range rows {
		var sum float64
		for c, v := range dx[r*columns : (r+1)*columns] {
			if c >= vocabulary && v != 0 {
				t.Errorf("the gradient of padding is %v in row %d, column %d", v, r, c)
			}
			sum += float64(v)
		}
		if !(math.Abs(sum) < 1e-6) { // softmax less one target
			t.Errorf("row %d's gradients add up to %v", r, sum)
		}
	}
}
