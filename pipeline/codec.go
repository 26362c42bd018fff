package pipeline

import (
	"fmt"
	"math"
	"reflect"

	"github.com/fxamacker/cbor/v2"
)

// The payload of a message is CBOR. Numbers keep every bit, NaN included; text
// need not be UTF-8, since file names need not; the limits against hostile
// input are those of the format, as both ends are ours.
var (
	encMode = must(cbor.EncOptions{
		Time:       cbor.TimeRFC3339NanoUTC,
		NaNConvert: cbor.NaNConvertNone,
		InfConvert: cbor.InfConvertNone,
	}.EncMode())
	decMode = must(cbor.DecOptions{
		UTF8:             cbor.UTF8DecodeInvalid,
		MaxArrayElements: math.MaxInt32,
		MaxMapPairs:      math.MaxInt32,
		MaxNestedLevels:  256,
		DefaultMapType:   reflect.TypeFor[map[string]any](),
		IntDec:           cbor.IntDecConvertSignedOrBigInt,
	}.DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func encode(v any) ([]byte, error) {
	b, err := encMode.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b, nil
}

func decode(b []byte, v any) error {
	if err := decMode.Unmarshal(b, v); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}
