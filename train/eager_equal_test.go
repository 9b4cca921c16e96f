package train_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/session"
)

// The configs whose compositions are compared.
const (
	tinyGPT   = `{"model_type":"gpt","vocab_size":331,"n_ctx":96,"n_layer":2,"n_embd":80,"n_head":5}`
	tinyGPT2  = `{"model_type":"gpt2","vocab_size":331,"n_positions":96,"n_layer":2,"n_embd":80,"n_head":5,"use_cache":false}`
	tinyQwen2 = `{"model_type":"qwen2","tie_word_embeddings":true,"use_cache":false,"vocab_size":331,"hidden_size":96,"intermediate_size":272,"num_hidden_layers":2,"num_attention_heads":6,"num_key_value_heads":2}`
)

// TestEagerComputesTheSame compares losses and gradients of the compositions
// for models that the golden trainings leave out.
func TestEagerComputesTheSame(t *testing.T) {
	llama := `"vocab_size":23,"hidden_size":24,"intermediate_size":40,"num_hidden_layers":2,"num_attention_heads":4,`
	for name, config := range map[string]string{
		"mlp":               `{"model_type":"mlp","dims":[7,11,9,5]}`,
		"gpt":               `{"model_type":"gpt","vocab_size":23,"n_ctx":12,"n_layer":2,"n_embd":24,"n_head":3}`,
		"gpt2":              `{"model_type":"gpt2","vocab_size":23,"n_positions":12,"n_layer":2,"n_embd":24,"n_head":3}`,
		"gpt2, heads of 3":  `{"model_type":"gpt2","vocab_size":23,"n_positions":12,"n_layer":2,"n_embd":24,"n_head":8,"use_cache":false}`,
		"gpt, heads of 5":   `{"model_type":"gpt","vocab_size":23,"n_ctx":12,"n_layer":2,"n_embd":20,"n_head":4}`,
		"llama, heads of 6": `{"model_type":"llama","num_key_value_heads":4,` + strings.TrimSuffix(llama, ",") + `}`,
		"gpt2, relu":        `{"model_type":"gpt2","vocab_size":23,"n_positions":12,"n_layer":1,"n_embd":24,"n_head":3,"activation_function":"relu"}`,
		"llama":             `{"model_type":"llama",` + llama + `"num_key_value_heads":4}`,
		"grouped llama":     `{"model_type":"llama",` + llama + `"num_key_value_heads":2,"attention_bias":true,"mlp_bias":true}`,
		"qwen2":             `{"model_type":"qwen2",` + llama + `"num_key_value_heads":1,"tie_word_embeddings":true}`,
	} {
		for _, loss := range []train.Loss{train.CrossEntropy, train.MeanOutput} {
			for _, checkpointing := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/checkpointing=%v", name, loss, checkpointing), func(t *testing.T) {
					want := gradients(t, config, loss, nn.Options{DType: device.Float64, GradientCheckpointing: checkpointing})
					got := gradients(t, config, loss, nn.Options{DType: device.Float64, GradientCheckpointing: checkpointing, Composition: nn.Eager})
					for i, g := range want {
						compare(t, fmt.Sprintf("value %d", i), got[i], g, 1e-9)
					}
				})
			}
		}
	}
}

// gradients are the loss and the gradients of all parameters.
func gradients(t *testing.T, config string, loss train.Loss, o nn.Options) [][]float64 {
	t.Helper()
	return gradientsOver(t, config, loss, o, 9)
}

// gradientsOver are gradients for sequences of so many tokens.
func gradientsOver(t *testing.T, config string, loss train.Loss, o nn.Options, tokens int) [][]float64 {
	t.Helper()
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	c := parse(t, []byte(config))
	model, err := models.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := session.New(dev, nil, session.Options{Seed: 7})
	if err := s.Materialize(model, o.DType); err != nil {
		t.Fatal(err)
	}
	shape := train.BatchShape{Rows: 3, Tokens: tokens}
	classes := 23
	if _, _, shape.Features, err = models.Sizes(c); err != nil {
		t.Fatal(err)
	}
	if shape.Features > 0 {
		shape.Tokens, classes = 0, 5
	}
	graph, err := train.BuildGraph(model, shape, loss, o)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := graph.Compile()
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	var inputs []*session.Value
	for i, spec := range graph.Specs {
		var b []byte
		if spec.DType == o.DType {
			v := make([]float64, spec.Elements())
			for j := range v {
				v[j] = r.NormFloat64()
			}
			b = floatBytes(spec.DType, v)
		} else {
			for j := range spec.Elements() {
				token := int64(r.IntN(classes))
				if i == 1 && j == 2 {
					token = -100
				}
				b = appendToken(b, spec.DType, token)
			}
		}
		v, err := s.Input("input", spec, b)
		if err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, v)
	}
	result, err := s.Forward(plan, inputs...)
	if err != nil {
		t.Fatal(err)
	}
	all := [][]float64{append([]float64(nil), readFloats(result.Output(0))...)}
	seed, err := s.Input("seed", device.Spec{DType: o.DType}, floatBytes(o.DType, []float64{1}))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Backward(result, seed); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Parameters() {
		g, ok := p.Gradient()
		if !ok {
			all = append(all, nil)
			continue
		}
		all = append(all, append([]float64(nil), readFloats(g)...))
	}
	return all
}

// TestEagerDropout checks that the mask that is kept is the one that was used.
func TestEagerDropout(t *testing.T) {
	config := `{"model_type":"gpt2","vocab_size":23,"n_positions":12,"n_layer":1,"n_embd":24,"n_head":3,"embd_pdrop":0.3,"resid_pdrop":0.3}`
	o := nn.Options{DType: device.Float64, Training: true}
	want := gradients(t, config, train.CrossEntropy, o)
	o.Composition = nn.Eager
	got := gradients(t, config, train.CrossEntropy, o)
	for i, g := range want {
		compare(t, fmt.Sprintf("value %d", i), got[i], g, 1e-9)
	}
}

// TestEagerMemoryOnDevices holds the eager plan to the same memory on a device
// that computes and on one that does not.
func TestEagerMemoryOnDevices(t *testing.T) {
	for _, config := range []string{tinyGPT, tinyGPT2, tinyQwen2} {
		var events [2][]string
		for i, dev := range []device.Device{device.NewCPU(alloc.Config{}), device.NewMeta(alloc.Config{})} {
			dev.Allocator().Observe(func(e *alloc.Event) {
				events[i] = append(events[i], fmt.Sprint(e.Action, e.Size, e.AllocatedBytes, e.ReservedBytes))
			})
			model, err := models.New(parse(t, []byte(config)))
			if err != nil {
				t.Fatal(err)
			}
			s := session.New(dev, nil, session.Options{})
			if err := s.Materialize(model, device.Float32); err != nil {
				t.Fatal(err)
			}
			graph, err := train.BuildGraph(model, train.BatchShape{Rows: 2, Tokens: 7}, train.CrossEntropy,
				nn.Options{Composition: nn.Eager, Training: true, GradientCheckpointing: true})
			if err != nil {
				t.Fatal(err)
			}
			plan, err := graph.Compile()
			if err != nil {
				t.Fatal(err)
			}
			var inputs []*session.Value
			for _, spec := range graph.Specs {
				v, err := s.Input("input", spec, make([]byte, spec.Bytes()))
				if err != nil {
					t.Fatal(err)
				}
				inputs = append(inputs, v)
			}
			r, err := s.Forward(plan, inputs...)
			if err != nil {
				t.Fatal(err)
			}
			seed, err := s.Input("seed", device.Spec{}, floatBytes(device.Float32, []float64{1}))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Backward(r, seed); err != nil {
				t.Fatal(err)
			}
			dev.Close()
		}
		if !slices.Equal(events[0], events[1]) || len(events[0]) < 300 {
			t.Errorf("%d events on the cpu device, %d on meta, or others", len(events[0]), len(events[1]))
		}
	}
}
