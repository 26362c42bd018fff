package forecast

import (
	"reflect"
	"time"

	"longship/gpu"
	"longship/gpu/tensor"
)

// takes returns how long the card works on a kernel: the longer of the time for
// its operations at the ceiling of its family, and of that for its operands,
// each moved once (a roofline; Williams, Waterman, Patterson, CACM 2009).
func (c Card) takes(k gpu.Kernel) time.Duration {
	cost := gpu.Cost{Bytes: operands(reflect.ValueOf(k))}
	if known, ok := k.(gpu.Coster); ok {
		cost = known.Cost()
	}
	rate := 0.0
	switch k.Name() {
	case "gemm":
		rate = c.Gemm
	case "attention":
		rate = c.Attention
	case "attention_backward":
		rate = c.AttentionBackward
	}
	seconds := float64(cost.Bytes) / c.Memory
	if rate > 0 {
		seconds = max(seconds, float64(cost.FLOPs)/rate)
	}
	return duration(seconds)
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

var tensorType = reflect.TypeFor[tensor.Tensor]()

// operands adds up the bytes of the tensors among a kernel's arguments. One that
// is read and written in place is named twice, and counts so.
func operands(v reflect.Value) (bytes int64) {
	if v.Type() == tensorType {
		if t := v.Interface().(tensor.Tensor); t.DType != 0 {
			return t.Bytes()
		}
		return 0
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				bytes += operands(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			bytes += operands(v.Index(i))
		}
	}
	return bytes
}
