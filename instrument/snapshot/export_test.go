package snapshot

// What the tests outside the package take from those inside.
var (
	Sample    = sample
	Gunzipped = gunzipped
	Entries   = entries
	With      = with
)
