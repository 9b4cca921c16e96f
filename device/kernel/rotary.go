package kernel

import "math"

// RotaryTable is a table (Positions, Size) from position Offset on or, with At,
// at the positions that the operand holds; Single says that it is computed in
// float32. Its frequencies are Theta^(−2i/Size), changed
// by Scaling.
type RotaryTable struct {
	Positions, Size, Offset int
	Theta                   float64
	Single, At              bool
	Scaling                 RotaryScaling
}

// RotaryScaling is how rotary frequencies, trained on sequences of Original
// positions, are changed for longer ones. Fields are of the kinds that name them.
type RotaryScaling struct {
	Kind RotaryScalingKind
	// Factor is how many times longer sequences become.
	Factor, Original float64
	// LowFactor and HighFactor are low_freq_factor and high_freq_factor of
	// RotaryLlama3: wavelengths above Original/LowFactor are scaled whole, those
	// below Original/HighFactor not at all.
	LowFactor, HighFactor float64
	// BetaFast and BetaSlow are, of RotaryYaRN, how often a dimension turns
	// within Original that is not scaled, and one that is scaled whole. Exact
	// leaves the bounds between dimensions unrounded.
	BetaFast, BetaSlow float64
	Exact              bool
	// Gain multiplies cosines and sines; 0 is 1.
	Gain float64
}

// RotaryScalingKind is a rule by which frequencies are changed.
type RotaryScalingKind uint8

// The rules: none, all frequencies divided by Factor (Chen et al., "Extending
// Context Window of Large Language Models via Positional Interpolation", 2023), as
// Llama 3.1 has it, and by parts ("YaRN: Efficient Context Window Extension of
// Large Language Models", Peng et al., 2023).
const (
	RotaryPlain RotaryScalingKind = iota
	RotaryLinear
	RotaryLlama3
	RotaryYaRN
)

// MaxRotarySize is the greatest Size of a table.
const MaxRotarySize = 256

// RotaryFrequencies are the first Size/2 angles by which a position is turned.
type RotaryFrequencies [MaxRotarySize / 2]float64

// Frequencies computes them. With Single each step rounds to float32, as the
// models of the transformers library do.
func (a RotaryTable) Frequencies() RotaryFrequencies {
	var f RotaryFrequencies
	round := func(x float64) float64 { return x }
	if a.Single {
		round = func(x float64) float64 { return float64(float32(x)) }
	}
	for i := range a.Size / 2 {
		plain := round(1 / round(math.Pow(a.Theta, round(float64(2*i)/float64(a.Size)))))
		f[i] = a.Scaling.apply(plain, i, a, round)
	}
	return f
}

// Gain is what cosines and sines are multiplied by.
func (a RotaryTable) Gain() float64 {
	if a.Scaling.Gain == 0 {
		return 1
	}
	return a.Scaling.Gain
}

// apply scales frequency i.
func (s RotaryScaling) apply(f float64, i int, a RotaryTable, round func(float64) float64) float64 {
	scaled := round(f / s.Factor)
	switch s.Kind {
	case RotaryLinear:
		return scaled
	case RotaryLlama3:
		wave := round(2 * math.Pi / f)
		switch {
		case wave < s.Original/s.HighFactor:
			return f
		case wave > s.Original/s.LowFactor:
			return scaled
		}
		kept := round((round(s.Original/wave) - s.LowFactor) / (s.HighFactor - s.LowFactor))
		return round(round(round(1-kept)*f/s.Factor) + round(kept*f))
	case RotaryYaRN:
		low, high := s.ramp(a)
		kept := round(1 - min(max((float64(i)-low)/(high-low), 0), 1))
		return round(round(scaled*round(1-kept)) + round(f*kept))
	}
	return f
}

// ramp is between which dimensions RotaryYaRN goes over from frequencies as they
// are to scaled ones.
func (s RotaryScaling) ramp(a RotaryTable) (low, high float64) {
	at := func(turns float64) float64 {
		return float64(a.Size) * math.Log(s.Original/(turns*2*math.Pi)) / (2 * math.Log(a.Theta))
	}
	low, high = at(s.BetaFast), at(s.BetaSlow)
	if !s.Exact {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(a.Size-1))
	if low == high {
		high += 0.001
	}
	return low, high
}
