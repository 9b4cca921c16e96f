package train

import (
	"fmt"
	"strings"
)

// CacheKind is how keys and values of earlier tokens are kept while generating.
type CacheKind string

// The kinds of cache.
const (
	// CacheNone keeps nothing: every token is computed again for each new one.
	CacheNone CacheKind = "none"
	// CacheDynamic grows by each token: the larger copy is made beside the old
	// one, as in PyTorch.
	CacheDynamic CacheKind = "dynamic"
	// CacheStatic has room for all tokens from the start.
	CacheStatic CacheKind = "static"
	// CacheSliding has room for the latest tokens, which are all that a token
	// sees.
	CacheSliding CacheKind = "sliding"
)

// CacheKinds lists the kinds of cache.
func CacheKinds() []CacheKind {
	return []CacheKind{CacheNone, CacheDynamic, CacheStatic, CacheSliding}
}

// ParseCacheKind is the kind of a name.
func ParseCacheKind(name string) (CacheKind, error) {
	var names []string
	for _, k := range CacheKinds() {
		if string(k) == name {
			return k, nil
		}
		names = append(names, string(k))
	}
	return "", fmt.Errorf("cache %q: there is %s", name, strings.Join(names, ", "))
}
