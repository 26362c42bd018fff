package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
)

// MessageType makes Event a message.
func (Event) MessageType() string { return "event" }

// MarshalJSON writes the event as one flat object: event, stage (where there is
// one), time, then Data in the order of its keys. JSON has no number for NaN and
// the infinities: they are the strings "NaN", "+Inf" and "-Inf". A key of Data
// that is one of the three is left out.
func (e Event) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	write := func(key string, v any) error {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		k, _ := json.Marshal(key)
		b.Write(k)
		b.WriteByte(':')
		j, err := json.Marshal(finite(v))
		if err != nil {
			return fmt.Errorf("event %s: %s: %w", e.Event, key, err)
		}
		b.Write(j)
		return nil
	}
	b.WriteByte('{')
	if err := write("event", e.Event); err != nil {
		return nil, err
	}
	if e.Stage != "" {
		if err := write("stage", e.Stage); err != nil {
			return nil, err
		}
	}
	if err := write("time", e.Time.Format(time.RFC3339Nano)); err != nil {
		return nil, err
	}
	for _, k := range slices.Sorted(maps.Keys(e.Data)) {
		if k == "event" || k == "stage" || k == "time" {
			continue
		}
		if err := write(k, e.Data[k]); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Number returns a number of Data, whatever type it travelled as; 0 where there
// is none.
func (e Event) Number(key string) float64 {
	switch v := e.Data[key].(type) {
	case float64:
		return v
	case float32:
		return float64(v)
	case int:
		return float64(v)
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	}
	return 0
}

// plain returns the event with values that every codec knows: an error is its
// text, a duration its seconds.
func (e Event) plain() Event {
	data := make(map[string]any, len(e.Data))
	for k, v := range e.Data {
		switch v := v.(type) {
		case error:
			data[k] = v.Error()
		case time.Duration:
			data[k] = v.Seconds()
		default:
			data[k] = v
		}
	}
	e.Data = data
	return e
}

// finite replaces the floats that JSON cannot say, at any depth of maps and lists.
func finite(v any) any {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return strconv.FormatFloat(v, 'g', -1, 64)
		}
	case float32:
		return finite(float64(v))
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = finite(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = finite(v[k])
		}
		return out
	}
	return v
}
