package gpu

// Checker is a kernel that can tell faulty arguments before it runs: shapes
// that do not fit, a type it has no code for. Streams call Check in Launch, so
// that the error names the call and a dry run finds it too.
type Checker interface {
	Check() error
}

// Coster is a kernel that knows what it costs, for planning and benchmarks.
type Coster interface {
	Cost() Cost
}

// Cost is the work of one kernel: floating-point operations (a multiply-add is
// two) and bytes of its operands read and written once.
type Cost struct {
	FLOPs int64
	Bytes int64
}
