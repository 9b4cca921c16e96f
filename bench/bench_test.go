package bench

import (
	"math"
	"testing"
)

// BenchmarkStep measures a whole training step (forward, backward, update) of
// every candidate, turn by turn, each turn in a fresh process. A round is one
// turn of each: -benchtime 5x does five and reports the best turn's speed and
// the least peak of memory. ns/op, the time of a round, says nothing.
//
//	X-tokens/s  (X-rows/s) speed of candidate X
//	X-MB        its process's peak resident memory, in 10⁶ bytes
//	speedup     tidemark's speed over the stock net's
//	memory      tidemark's peak over the stock net's
//	memory-above-start  the same without what a process has before its model
//	allocated-MB, reserved-MB  the peaks of tidemark's allocator
//	stock-live-MB  what the stock net's machine holds between two steps
func BenchmarkStep(b *testing.B) {
	names := []string{tidemark, stockTape, ownTape}
	for _, w := range workloads {
		b.Run(w.name, func(b *testing.B) {
			best := make(map[string]measurement)
			for b.Loop() {
				for _, name := range names {
					m, err := inProcess(name, w)
					if err != nil {
						b.Fatal(err)
					}
					b.Logf("%s: %+v", name, m)
					if old, ok := best[name]; ok {
						m.Seconds = min(m.Seconds, old.Seconds)
						m.ResidentBytes = min(m.ResidentBytes, old.ResidentBytes)
						m.LiveBytes = min(m.LiveBytes, old.LiveBytes)
					}
					best[name] = m
				}
			}
			ours, stock := best[tidemark], best[stockTape]
			for _, name := range names {
				m := best[name]
				if !(math.Abs(m.Loss-ours.Loss) <= 1e-3*ours.Loss) {
					b.Errorf("%s has loss %v where tidemark has %v: they do not train the same net", name, m.Loss, ours.Loss)
				}
				b.ReportMetric(float64(w.units())/m.Seconds, name+"-"+w.unit()+"/s")
				b.ReportMetric(float64(m.ResidentBytes)/1e6, name+"-MB")
			}
			b.ReportMetric(stock.Seconds/ours.Seconds, "speedup")
			if stock.ResidentBytes > 0 {
				b.ReportMetric(float64(ours.ResidentBytes)/float64(stock.ResidentBytes), "memory")
				b.ReportMetric(float64(ours.ResidentBytes-ours.StartBytes)/float64(stock.ResidentBytes-stock.StartBytes),
					"memory-above-start")
			}
			b.ReportMetric(float64(ours.AllocatedBytes)/1e6, "allocated-MB")
			b.ReportMetric(float64(ours.ReservedBytes)/1e6, "reserved-MB")
			b.ReportMetric(float64(stock.LiveBytes)/1e6, "stock-live-MB")
		})
	}
}

// BenchmarkTrainer is tidemark's step alone in this process, for profiles:
//
//	go test ./bench -run '^$' -bench Trainer/gpt-char -cpuprofile cpu.out
func BenchmarkTrainer(b *testing.B) {
	for _, w := range workloads {
		b.Run(w.name, func(b *testing.B) {
			batches, err := w.batches(2)
			if err != nil {
				b.Fatal(err)
			}
			t, err := newTrainer(w, batches)
			if err != nil {
				b.Fatal(err)
			}
			defer t.close()
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if _, err := t.step(n % len(batches)); err != nil {
					b.Fatal(err)
				}
				n++
			}
			forward, again, backward := t.t.Plan().FLOPs()
			seconds := b.Elapsed().Seconds() / float64(b.N)
			b.ReportMetric(float64(w.units())/seconds, w.unit()+"/s")
			b.ReportMetric((forward+again+backward)/seconds/1e9, "GFLOPS")
		})
	}
}
