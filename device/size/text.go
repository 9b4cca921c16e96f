package size

import "strconv"

// Text gives a number of bytes in a fitting unit, such as "1.863 GiB" (2^30
// bytes), "200.0 MiB" or "512 B".
func Text(bytes int64) string {
	sign, size := "", float64(bytes)
	if bytes < 0 {
		sign, size = "-", -size
	}
	for _, u := range []struct {
		name     string
		bytes    float64
		decimals int
	}{{"GiB", 1 << 30, 3}, {"MiB", 1 << 20, 1}, {"KiB", 1 << 10, 1}} {
		if size >= u.bytes {
			return sign + strconv.FormatFloat(size/u.bytes, 'f', u.decimals, 64) + " " + u.name
		}
	}
	return strconv.FormatInt(bytes, 10) + " B"
}
