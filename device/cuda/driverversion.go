package cuda

import "regexp"

// moduleVersion is the version in the first line of NVIDIA's version file, for the closed
// module ("… x86_64 Kernel Module  580.159.04  Tue …") and the open one ("…
// Open Kernel Module for x86_64  580.159.04  Release Build …").
var moduleVersion = regexp.MustCompile(`^NVRM version:.*?Kernel Module\D.*?\s(\d+\.\d+(?:\.\d+)*)\s`)

// parseModuleVersion reads the driver's version from the text of that file;
// it is empty where there is none.
func parseModuleVersion(text string) string {
	if m := moduleVersion.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}
