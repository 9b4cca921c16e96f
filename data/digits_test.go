package data

import (
	"math"
	"slices"
	"testing"
)

func mustDigits(t testing.TB, opts DigitsOptions) *Batch {
	t.Helper()
	src, err := Digits(opts)
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	if err := src.Batch(0, &b); err != nil {
		t.Fatal(err)
	}
	return &b
}

// A sample depends on its number, the seed and the split, and on nothing else.
func TestDigitsDeterministic(t *testing.T) {
	opts := DigitsOptions{Seed: 4, Batch: 30}
	whole := mustDigits(t, opts)
	opts.Batch = 10
	tens, err := Digits(opts)
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	for _, k := range []int{2, 0, 1} { // in any order
		if err := tens.Batch(k, &b); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(b.Features, whole.Features[k*10*DigitFeatures:(k+1)*10*DigitFeatures]) ||
			!slices.Equal(b.Targets, whole.Targets[k*10:(k+1)*10]) {
			t.Errorf("batch %d of 10 differs from the rows of a batch of 30", k)
		}
	}
	for _, other := range []DigitsOptions{{Seed: 5, Batch: 30}, {Seed: 4, Split: Validation, Batch: 30}} {
		if slices.Equal(mustDigits(t, other).Features, whole.Features) {
			t.Errorf("%+v is the same as seed 4, training", other)
		}
	}
}

// No image of one split is an image of the other, nor is any drawn twice.
func TestDigitsDisjoint(t *testing.T) {
	seen := map[uint64]string{}
	for _, split := range []Split{Train, Validation} {
		b := mustDigits(t, DigitsOptions{Seed: 1, Split: split, Batch: 3000})
		for r := range b.Targets {
			h := uint64(14695981039346656037) // FNV-1a over the pixels
			for _, v := range b.Features[r*DigitFeatures : (r+1)*DigitFeatures] {
				h = (h ^ uint64(math.Float32bits(v))) * 1099511628211
			}
			if before := seen[h]; before != "" {
				t.Fatalf("%v image %d is a %s image too", split, r, before)
			}
			seen[h] = split.String()
		}
	}
}

// The random numbers of no two samples begin at one state of the generator.
func TestSamplerStates(t *testing.T) {
	seen := map[string]bool{}
	s := newSampler()
	for _, split := range []Split{Train, Validation} {
		for i := range uint64(20000) {
			s.at(1, digitStream, split, i)
			state, err := s.pcg.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			if seen[string(state)] {
				t.Fatalf("%v sample %d has the state of another", split, i)
			}
			seen[string(state)] = true
		}
	}
}

// Digits come equally often, their pixels lie in [0, 1], and each has ink. The
// mean images of the classes, a linear classifier, tell more than chance and
// far less than everything: there is something to learn, and it is not linear.
func TestDigitsContent(t *testing.T) {
	const n = 4000
	train := mustDigits(t, DigitsOptions{Batch: n})
	var counts [DigitClasses]int
	chalk := 0
	var means [DigitClasses][DigitFeatures]float64
	for r, class := range train.Targets {
		counts[class]++
		dark := 0
		for j, v := range train.Features[r*DigitFeatures : (r+1)*DigitFeatures] {
			if !(v >= 0 && v <= 1) {
				t.Fatalf("image %d: pixel %d is %v", r, j, v)
			}
			means[class][j] += float64(v)
			if v > 0.5 {
				dark++
			}
		}
		if dark > DigitFeatures/2 {
			dark = DigitFeatures - dark
			chalk++
		}
		if dark < 10 || dark > DigitFeatures/3 {
			t.Errorf("image %d, a %d, has %d pixels drawn", r, class, dark)
		}
	}
	for class, c := range counts {
		if c < n/10*8/10 || c > n/10*12/10 {
			t.Errorf("digit %d came %d times of %d", class, c, n)
		}
		for j := range means[class] {
			means[class][j] /= float64(c)
		}
	}
	if chalk < n*digitChalk*9/10 || chalk > n*digitChalk*11/10 {
		t.Errorf("%d of %d are in chalk", chalk, n)
	}
	held := mustDigits(t, DigitsOptions{Split: Validation, Batch: n})
	right := 0
	for r, class := range held.Targets {
		best, guess := math.Inf(1), int32(-1)
		for k := range means {
			d := 0.0
			for j, v := range held.Features[r*DigitFeatures : (r+1)*DigitFeatures] {
				d += (float64(v) - means[k][j]) * (float64(v) - means[k][j])
			}
			if d < best {
				best, guess = d, int32(k)
			}
		}
		if guess == class {
			right++
		}
	}
	if accuracy := float64(right) / n; accuracy < 0.3 || accuracy > 0.8 {
		t.Errorf("nearest mean has accuracy %v", accuracy)
	} else {
		t.Logf("nearest mean has accuracy %v", accuracy)
	}
}

// A finite set ends, and what its last batch cannot fill is not counted.
func TestFinite(t *testing.T) {
	sources := map[string]func(samples int) (Source, error){
		"digits": func(n int) (Source, error) {
			return Digits(DigitsOptions{Split: Validation, Batch: 8, Samples: n})
		},
		"teacher": func(n int) (Source, error) {
			return Teacher(TeacherOptions{Split: Validation, Batch: 8, Samples: n, Features: 5, Outputs: 3})
		},
	}
	for name, source := range sources {
		for n, batches := range map[int]int{1: 1, 8: 1, 9: 2, 23: 3, 24: 3} {
			src, err := source(n)
			if err != nil {
				t.Fatal(err)
			}
			if src.Len() != batches {
				t.Fatalf("%s: %d samples are %d batches, want %d", name, n, src.Len(), batches)
			}
			count, targets := 0, 0
			var b Batch
			for i := range batches {
				if err := src.Batch(i, &b); err != nil {
					t.Fatal(err)
				}
				count += b.Count
				for r, target := range b.Targets {
					if target != Ignore {
						targets++
					} else if slices.Max(b.Features[r*src.Shape().Columns:(r+1)*src.Shape().Columns]) != 0 {
						t.Errorf("%s: row %d behind the end is not empty", name, r)
					}
				}
			}
			if count != n || targets != n {
				t.Errorf("%s: %d counted, %d targets of %d", name, count, targets, n)
			}
			wantError(t, src.Batch(batches, &b), "does not exist, the source has")
		}
	}
	_, err := Digits(DigitsOptions{})
	wantError(t, err, "digits: batch size is 0")
	_, err = Digits(DigitsOptions{Batch: 1, Samples: -1})
	wantError(t, err, "number of samples is -1")
}

// Both splits are taught by one net; its values have the promised moments, and
// no class is left out.
func TestTeacher(t *testing.T) {
	opts := TeacherOptions{Seed: 9, Batch: 2000, Features: 20, Outputs: 6, Values: true}
	values, classes := Batch{}, Batch{}
	src, err := Teacher(opts)
	if err != nil {
		t.Fatal(err)
	}
	if src.Shape() != (Shape{Values, 2000, 20, 6}) || src.Len() != -1 {
		t.Errorf("source of %d batches, %+v", src.Len(), src.Shape())
	}
	if err := src.Batch(1, &values); err != nil {
		t.Fatal(err)
	}
	opts.Values = false
	if src, err = Teacher(opts); err != nil {
		t.Fatal(err)
	}
	if err := src.Batch(1, &classes); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(values.Features, classes.Features) || len(values.Targets) != 0 || len(classes.Values) != 0 {
		t.Error("values and classes have other inputs")
	}
	mean, square := 0.0, 0.0
	counts := make([]int, 6)
	for r, class := range classes.Targets {
		row := values.Values[r*6 : (r+1)*6]
		for _, v := range row {
			mean += float64(v) / float64(len(values.Values))
			square += float64(v) * float64(v) / float64(len(values.Values))
		}
		if row[class] != slices.Max(row) {
			t.Fatalf("row %d: class %d of %v", r, class, row)
		}
		counts[class]++
	}
	if math.Abs(mean) > 0.1 || square < 0.5 || square > 2 {
		t.Errorf("values have mean %v, mean square %v", mean, square)
	}
	if slices.Min(counts) < 50 {
		t.Errorf("classes came %v times", counts)
	}
	opts.Split = Validation
	held, err := Teacher(opts)
	if err != nil {
		t.Fatal(err)
	}
	a, b := src.(*teacher), held.(*teacher)
	if !slices.Equal(a.u, b.u) || !slices.Equal(a.v, b.v) {
		t.Error("the splits have different teachers")
	}
	if err := held.Batch(1, &values); err != nil || slices.Equal(values.Features, classes.Features) {
		t.Errorf("the splits have the same samples, %v", err)
	}

	for _, c := range []struct {
		opts TeacherOptions
		want string
	}{
		{TeacherOptions{Batch: 2, Outputs: 1}, "number of features is 0"},
		{TeacherOptions{Batch: 2, Features: 1}, "number of outputs is 0"},
		{TeacherOptions{Batch: 2, Features: 1 << 24, Outputs: 1}, "at most 8388608 of each"},
		{TeacherOptions{Batch: 2, Features: 1, Outputs: 1, Samples: -2}, "number of samples is -2"},
		{TeacherOptions{Batch: 2, Features: 1, Outputs: 1, Samples: 3, Values: true}, "do not fill batches of 2"},
	} {
		_, err := Teacher(c.opts)
		wantError(t, err, c.want)
	}
}

func BenchmarkDigits(b *testing.B) {
	src, err := Digits(DigitsOptions{Batch: 100})
	if err != nil {
		b.Fatal(err)
	}
	var batch Batch
	for i := 0; b.Loop(); i++ {
		if err := src.Batch(i, &batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(100*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}
