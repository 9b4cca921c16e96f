package report

// What the tests outside the package take from those inside.
var (
	CompareSamples   = compareSamples
	SampleComparison = sampleComparison
)
