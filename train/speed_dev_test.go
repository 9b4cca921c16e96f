package train_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/train"
)

func TestSpeedDev(t *testing.T) {
	if os.Getenv("SPEED") == "" {
		t.Skip()
	}
	for _, c := range []string{
		`{"model_type":"qwen2","hidden_size":1536,"intermediate_size":8960,"num_hidden_layers":28,"num_attention_heads":12,"num_key_value_heads":2,"vocab_size":151936,"tie_word_embeddings":true}`,
		`{"model_type":"llama","hidden_size":8192,"intermediate_size":28672,"num_hidden_layers":80,"num_attention_heads":64,"num_key_value_heads":8,"vocab_size":128256}`,
	} {
		for _, ck := range []bool{false, true} {
			for _, comp := range []nn.Composition{nn.Eager, nn.Fused} {
				w := train.Workload{Model: parse(t, []byte(c)), Shape: train.BatchShape{Rows: 1, Tokens: 2048}, Loss: train.CrossEntropy, Optimizer: "adamw", Composition: comp, GradientCheckpointing: ck}
				at := time.Now()
				p, err := train.Predict(w)
				if err != nil {
					t.Fatal(err)
				}
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				fmt.Println(comp, ck, p.Parameters, p.Recorder.Peak().AllocatedBytes>>20, time.Since(at), m.Sys>>20, "MiB")
			}
		}
	}
}
