package train_test

import (
	"runtime"
	"slices"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/train"
)

// overwritten keeps the compiler from leaving the allocations below out.
var overwritten []byte

// TestEagerWhileCollecting computes while another goroutine collects garbage
// and writes over what the collector gave back: an operand that only its
// address kept would change under the kernel.
func TestEagerWhileCollecting(t *testing.T) {
	const config = `{"model_type":"gpt2","vocab_size":23,"n_positions":256,"n_layer":2,"n_embd":128,"n_head":4}`
	o := nn.Options{DType: device.Float64, Composition: nn.Eager}
	want := gradientsOver(t, config, train.CrossEntropy, o, 96)
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			runtime.GC()
			for range 200 {
				b := make([]byte, 9216) // as large as the scratch memory of attention here
				for i := range b {
					b[i] = 0x7f
				}
				overwritten = b
			}
		}
	}()
	for i := range 12 {
		got := gradientsOver(t, config, train.CrossEntropy, o, 96)
		for j := range want {
			if !slices.Equal(got[j], want[j]) {
				t.Errorf("round %d: value %d changed", i, j)
			}
		}
	}
	close(stop)
	<-done
}
