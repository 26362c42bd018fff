package profile

import (
	"encoding/json"
	"fmt"
)

// Fields returns the summary as maps, lists and numbers, as messages carry it.
func (s *Summary) Fields() (map[string]any, error) {
	var data map[string]any
	b, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(b, &data)
	}
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return data, nil
}

// FromFields reads what Fields has written.
func FromFields(data map[string]any) (*Summary, error) {
	s := &Summary{}
	b, err := json.Marshal(data)
	if err == nil {
		err = json.Unmarshal(b, s)
	}
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return s, nil
}
