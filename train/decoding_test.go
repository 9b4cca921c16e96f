package train_test

import (
	"fmt"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// decodable are small language models of every kind of attention.
var decodable = map[string]string{
	"gpt":   `{"model_type":"gpt","vocab_size":23,"n_ctx":80,"n_layer":2,"n_embd":24,"n_head":3}`,
	"gpt2":  `{"model_type":"gpt2","vocab_size":23,"n_positions":80,"n_layer":2,"n_embd":24,"n_head":3}`,
	"llama": `{"model_type":"llama",` + smallLlama + `"num_hidden_layers":2,"num_key_value_heads":2,"attention_bias":true}`,
	"qwen2": `{"model_type":"qwen2",` + smallLlama + `"num_hidden_layers":2,"num_key_value_heads":1,"tie_word_embeddings":true}`,
}

const smallLlama = `"vocab_size":23,"hidden_size":24,"intermediate_size":40,"num_attention_heads":4,"max_position_embeddings":80,`

// decoder is a model on the cpu.
type decoder struct {
	s     *session.Session
	model nn.Module
	build nn.Options
}

func newDecoder(t *testing.T, dev device.Device, rec *instrument.Recorder, config string, dt device.DType) *decoder {
	t.Helper()
	model, err := models.New(parse(t, []byte(config)))
	if err != nil {
		t.Fatal(err)
	}
	d := &decoder{session.New(dev, rec, session.Options{Seed: 9}), model, nn.Options{DType: dt}}
	if err := d.s.Materialize(model, dt); err != nil {
		t.Fatal(err)
	}
	for i, p := range d.s.Parameters() { // larger than they begin, so that attention looks at something
		if len(p.Value.Shape) < 2 || !dev.Info().Kind.Computes {
			continue
		}
		for j := range p.Value.Elements() {
			x := 0.4 * float64((int(j)*7919+i*104729)%1000-500) / 500
			if dt == device.Float64 {
				p.Value.Float64s()[j] = x
			} else {
				p.Value.Float32s()[j] = float32(x)
			}
		}
	}
	return d
}

// logits computes all tokens at once: those of each position.
func (d *decoder) logits(t *testing.T, tokens []int32) [][]float64 {
	t.Helper()
	b := nn.NewBuilder(d.model, d.build)
	out, err := b.Run(b.Input("batch", device.Spec{DType: device.Int32, Shape: []int{1, len(tokens)}}))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(b, []*gorgonia.Node{out.One()}, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in, err := d.s.Inputs(p, tokens)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	r, err := d.s.Forward(p, in...)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	v, err := d.s.Floats(r.Output(0))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(slices.Chunk(v, len(v)/len(tokens)))
}

func (d *decoder) decoding(t *testing.T, o train.DecodingOptions) *train.Decoding {
	t.Helper()
	dec, err := train.NewDecoding(d.s, d.model, d.build, o)
	if err != nil {
		t.Fatal(err)
	}
	return dec
}

func tokensOf(n, seed int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32((i*i*7 + i*seed + seed) % 23)
	}
	return tokens
}

// Every token's logits, with keys and values kept, are those of computing the
// whole sequence at once, for rows of different lengths too.
func TestDecodingEqualsComputingAgain(t *testing.T) {
	const total = 72
	for name, config := range decodable {
		for _, o := range []train.DecodingOptions{
			{Cache: train.CacheDynamic}, {Cache: train.CacheStatic, Tokens: total}, {Cache: train.CacheSliding, Tokens: total},
		} {
			t.Run(fmt.Sprintf("%s/%s", name, o.Cache), func(t *testing.T) {
				dev := device.NewCPU(alloc.Config{})
				defer dev.Close()
				d := newDecoder(t, dev, nil, config, device.Float64)
				begin := dev.Allocator().Stats().Allocated.Current
				texts := [][]int32{tokensOf(total, 3), tokensOf(total, 5), tokensOf(total, 8)}
				lengths := []int{5, 8, 1}
				var want [][][]float64
				var prompts [][]int32
				for i, text := range texts {
					want = append(want, d.logits(t, text))
					prompts = append(prompts, text[:lengths[i]])
				}
				dec := d.decoding(t, o)
				for range 2 { // a second time on the same plans
					got, err := dec.Prefill(prompts)
					if err != nil {
						t.Fatal(err)
					}
					for step := 0; ; step++ {
						next := make([]int32, len(texts))
						for i := range texts {
							at := lengths[i] - 1 + step
							compare(t, fmt.Sprintf("row %d, position %d", i, at), got.Logits[i*23:(i+1)*23], want[i][at], 1e-10)
							next[i] = texts[i][at+1]
						}
						if step == 63 {
							break
						}
						if got, err = dec.Step(next); err != nil {
							t.Fatal(err)
						}
					}
				}
				dec.Close()
				if n := dev.Allocator().Stats().Allocated.Current; n != begin {
					t.Errorf("%d bytes are allocated, %d before", n, begin)
				}
			})
		}
	}
}

// With one layer, whose keys know nothing of earlier tokens, and positions that
// only matter relative to each other, a sliding cache of w tokens is the same as
// computing the last w tokens again.
func TestSlidingEqualsAWindow(t *testing.T) {
	const window, total = 9, 70
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	d := newDecoder(t, dev, nil, `{"model_type":"llama",`+smallLlama+`"num_hidden_layers":1,"num_key_value_heads":2}`, device.Float64)
	texts := [][]int32{tokensOf(total, 3), tokensOf(total, 5)}
	lengths := []int{4, 21} // within and beyond the window
	dec := d.decoding(t, train.DecodingOptions{Cache: train.CacheSliding, Tokens: window})
	defer dec.Close()
	got, err := dec.Prefill([][]int32{texts[0][:lengths[0]], texts[1][:lengths[1]]})
	if err != nil {
		t.Fatal(err)
	}
	for step := range 45 {
		next := make([]int32, 2)
		for i, text := range texts {
			end := lengths[i] + step
			seen := text[max(0, end-window):end]
			again := d.logits(t, seen)
			compare(t, fmt.Sprintf("row %d, %d tokens", i, end), got.Logits[i*23:(i+1)*23], again[len(again)-1], 1e-10)
			next[i] = text[end]
		}
		if got, err = dec.Step(next); err != nil {
			t.Fatal(err)
		}
	}
	if n, want := dec.CacheBytes(), int64(2*1*2*6*window*8*2); n != want {
		t.Errorf("the cache has %d bytes, expected %d", n, want)
	}
}

// A cache is 2 · layers · key/value heads · head size · tokens · bytes · rows,
// and meta and the cpu take the same memory at every event.
func TestCacheBytes(t *testing.T) {
	const rows, prompt, steps = 3, 5, 6
	for _, o := range []struct {
		train.DecodingOptions
		tokens int
	}{
		{train.DecodingOptions{Cache: train.CacheDynamic}, prompt + steps},
		{train.DecodingOptions{Cache: train.CacheStatic, Tokens: 40}, 40},
		{train.DecodingOptions{Cache: train.CacheSliding, Tokens: 7}, 7},
	} {
		var events [2][]instrument.Event
		for i, dev := range []device.Device{device.NewMeta(alloc.Config{}), device.NewCPU(alloc.Config{})} {
			defer dev.Close()
			rec := instrument.New(instrument.Options{NoTiming: true})
			rec.Attach(dev.Allocator())
			d := newDecoder(t, dev, rec, decodable["llama"], device.Float32)
			dec := d.decoding(t, o.DecodingOptions)
			if _, err := dec.Prefill(slices.Repeat([][]int32{tokensOf(prompt, 2)}, rows)); err != nil {
				t.Fatal(err)
			}
			for range steps {
				if _, err := dec.Step(make([]int32, rows)); err != nil {
					t.Fatal(err)
				}
			}
			want := int64(2 * 2 * 2 * 6 * o.tokens * 4 * rows)
			if n := dec.CacheBytes(); n != want {
				t.Errorf("%s: the cache has %d bytes, expected %d", o.Cache, n, want)
			}
			if n := rec.Usage().ByCategory[instrument.Cache]; n < want || n > want+8*511 { // blocks are rounded
				t.Errorf("%s: %d bytes are recorded as cache, expected %d", o.Cache, n, want)
			}
			events[i] = slices.Collect(rec.Events())
			dec.Close()
			if err := rec.Check(); err != nil {
				t.Error(err)
			}
		}
		if len(events[0]) != len(events[1]) {
			t.Fatalf("%s: %d events on meta, %d on the cpu", o.Cache, len(events[0]), len(events[1]))
		}
		for i, e := range events[0] {
			if c := events[1][i]; e.Action != c.Action || e.Size != c.Size || e.AllocatedBytes != c.AllocatedBytes || e.ReservedBytes != c.ReservedBytes {
				t.Fatalf("%s: event %d is %+v on meta, %+v on the cpu", o.Cache, i, e, c)
			}
		}
	}
}

func TestDecodingRefuses(t *testing.T) {
	dev := device.NewMeta(alloc.Config{})
	d := newDecoder(t, dev, nil, decodable["llama"], device.Float32)
	for _, o := range []train.DecodingOptions{{}, {Cache: train.CacheNone}, {Cache: train.CacheStatic}, {Cache: train.CacheSliding, Tokens: -1}} {
		if _, err := train.NewDecoding(d.s, d.model, d.build, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	dec := d.decoding(t, train.DecodingOptions{Cache: train.CacheStatic, Tokens: 4})
	for _, prompts := range [][][]int32{{tokensOf(5, 1)}, {tokensOf(2, 1), nil}} {
		if _, err := dec.Prefill(prompts); err == nil {
			t.Errorf("prompts %v were accepted", prompts)
		}
	}
	if _, err := dec.Prefill([][]int32{tokensOf(3, 1)}); err != nil {
		t.Fatal(err)
	}
	if _, err := dec.Step([]int32{1, 2}); err == nil {
		t.Error("two tokens for one row were accepted")
	}
	if _, err := dec.Step([]int32{1}); err != nil {
		t.Error(err)
	}
	if _, err := dec.Step([]int32{1}); err == nil {
		t.Error("a fifth token went into a static cache of four")
	}
}
