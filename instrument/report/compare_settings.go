package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Setting is one setting of a report, by its path such as "model.layers".
type Setting struct{ Name, Value string }

// maxSettingDepth bounds how deeply settings may be nested.
const maxSettingDepth = 32

// Flatten lists settings, which JSON can encode, in their order. The members of
// an object are named by its path; a list is one value. Strings are shown
// without quotes.
func Flatten(settings any) ([]Setting, error) {
	if settings == nil {
		return nil, nil
	}
	data, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	list, err := flattenJSON(nil, "", data, 0)
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	return list, nil
}

func flattenJSON(list []Setting, name string, data json.RawMessage, depth int) ([]Setting, error) {
	if depth > maxSettingDepth {
		return nil, errors.New("nested too deeply")
	}
	text := bytes.TrimSpace(data)
	if len(text) == 0 || text[0] != '{' {
		s := string(text)
		if len(text) > 0 && text[0] == '"' {
			if err := json.Unmarshal(text, &s); err != nil {
				return nil, err
			}
		}
		if s == "" {
			s = strconv.Quote(s)
		}
		if name == "" {
			name = "settings"
		}
		return append(list, Setting{name, s}), nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var member json.RawMessage
		if err := d.Decode(&member); err != nil {
			return nil, err
		}
		path := fmt.Sprint(key)
		if name != "" {
			path = name + "." + path
		}
		if list, err = flattenJSON(list, path, member, depth+1); err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return list, nil
}
