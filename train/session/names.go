package session

import "strings"

// moduleOf is the path of the module that a parameter belongs to.
func moduleOf(name string) string {
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name[:i]
	}
	return ""
}

// leafOf is a parameter's name within its module.
func leafOf(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }
