package train

import (
	"context"
	"fmt"

	"longship/gpu"
	"longship/gpu/tensor"
)

// transfer moves tensors between the device and host bytes for whoever borrows
// the state (port.Memory), through pinned memory, a piece at a time.
type transfer struct {
	stream gpu.Stream
	bounce gpu.Buffer
}

const bounceBytes = 1 << 20

func newTransfer(dev gpu.Device, stream gpu.Stream) (*transfer, error) {
	buf, err := dev.AllocHost(bounceBytes)
	if err != nil {
		return nil, fmt.Errorf("memory for transfers: %w", err)
	}
	return &transfer{stream: stream, bounce: buf}, nil
}

// Read fills dst with t's bytes, after the work queued so far.
func (m *transfer) Read(ctx context.Context, t tensor.Tensor, dst []byte) error {
	return m.pieces(ctx, t, len(dst), func(bounce, device gpu.Region, lo, hi int64) error {
		m.stream.Copy(bounce, device)
		if err := m.stream.Sync(); err != nil {
			return err
		}
		copy(dst[lo:hi], bounce.Bytes())
		return nil
	})
}

// Write sets t to src, after the work queued so far.
func (m *transfer) Write(ctx context.Context, t tensor.Tensor, src []byte) error {
	return m.pieces(ctx, t, len(src), func(bounce, device gpu.Region, lo, hi int64) error {
		copy(bounce.Bytes(), src[lo:hi])
		m.stream.Copy(device, bounce)
		return m.stream.Sync()
	})
}

func (m *transfer) pieces(ctx context.Context, t tensor.Tensor, n int, move func(bounce, device gpu.Region, lo, hi int64) error) error {
	r := t.Region()
	if int64(n) != r.Len {
		return fmt.Errorf("transfer of %d bytes for a tensor %s %v of %d", n, t.DType, t.Shape, r.Len)
	}
	for lo := int64(0); lo < r.Len; lo += bounceBytes {
		if err := ctx.Err(); err != nil {
			return err
		}
		hi := min(lo+bounceBytes, r.Len)
		bounce := gpu.Region{Buf: m.bounce, Len: hi - lo}
		if err := move(bounce, gpu.Region{Buf: r.Buf, Off: r.Off + lo, Len: hi - lo}, lo, hi); err != nil {
			return err
		}
	}
	return nil
}

func (m *transfer) close() error { return m.bounce.Free() }
