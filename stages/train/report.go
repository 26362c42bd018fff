package train

import (
	"context"
	"fmt"
	"time"

	"longship/pipeline"
	"longship/stages/port"
)

// settle waits for steps and tells of them, until only leave are not known.
func (l *loop) settle(ctx context.Context, leave int) error {
	for l.t.board.waiting() > leave {
		known := l.host("wait for a step")
		r, err := l.t.board.read(ctx)
		if err != nil {
			return err
		}
		known()
		if err := l.report(ctx, r); err != nil {
			return err
		}
		l.measure()
	}
	return nil
}

// report tells of a step. Too many in a row that were not finite end the run.
func (l *loop) report(ctx context.Context, r result) error {
	l.updates = r.taken
	if r.skipped {
		l.skipped++
		l.row++
		l.set.Log.Warn("the loss or a gradient is not finite: nothing is updated in this step", "step", r.step, "loss", r.loss(), "in a row", l.row)
	} else {
		l.row = 0
	}
	now := time.Now()
	msg := port.Step{Step: r.step, Loss: r.loss(), LR: r.lr, GradNorm: r.norm, Seconds: now.Sub(l.reported).Seconds(), Skipped: r.skipped}
	l.reported, l.lastLoss = now, msg.Loss
	if err := l.steps.Send(ctx, msg); err != nil {
		return err
	}
	l.set.Env.Emit(ctx, pipeline.Event{Event: "step", Stage: l.set.ID, Data: map[string]any{
		"step": msg.Step, "steps": l.cfg.Steps, "loss": msg.Loss, "lr": msg.LR, "grad_norm": msg.GradNorm,
		"s_per_it": msg.Seconds, "skipped": msg.Skipped, "traced": l.traced(msg.Step),
	}})
	l.set.Progress(ctx, msg.Step, l.cfg.Steps, "steps")
	if l.row >= l.cfg.MaxNonFinite {
		return fmt.Errorf("loss or gradients were not finite in %d steps in a row, up to step %d; the last checkpoint stands: lower lr, or look among the last steps' images for a damaged one", l.row, r.step)
	}
	return nil
}

// validate measures and tells the validation loss, if there are samples for it.
func (l *loop) validate(ctx context.Context) error {
	if l.t.validation == 0 {
		return nil
	}
	loss, zero, err := l.t.validate(ctx, l.source)
	if err != nil {
		return err
	}
	l.set.Log.Debug("validation", "step", l.step, "loss", loss, "zero", zero)
	l.set.Env.Emit(ctx, pipeline.Event{Event: "validation", Stage: l.set.ID, Data: map[string]any{
		"step": l.step, "loss": loss, "zero": zero,
	}})
	return l.validation.Send(ctx, port.Validation{Step: l.step, Loss: loss, Zero: zero})
}

// summarise adds the run's end to the summary.
func (l *loop) summarise(ctx context.Context) {
	l.set.Summarise("steps", fmt.Sprintf("%d of %d", l.step, l.cfg.Steps))
	l.set.Summarise("loss of the last step", l.lastLoss)
	l.set.Summarise("trained parameters", l.t.set.Size())
	if l.skipped > 0 {
		l.set.Summarise("steps without an update, not finite", l.skipped)
	}
	l.tellProfile(ctx)
}
