package turn

import (
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// waitDisk is the reason of new runs for which there is no room now. It is their subject too, by which they are found when there is.
const waitDisk = "disk"

// noRoom returns the wait of what should not begin now; nil where it may.
func (e *Engine) noRoom() *agentv1.RunWait {
	if e.deps.Lack == nil {
		return nil
	}
	if why := e.deps.Lack(); why != "" {
		return &agentv1.RunWait{Reason: waitDisk, Message: why, Subject: waitDisk}
	}
	return nil
}

// roomAgain has the runs look again that wait for room, where there is some.
func (e *Engine) roomAgain() {
	if e.noRoom() != nil {
		return
	}
	for _, a := range e.all() {
		a.mu.Lock()
		waits := a.subject == waitDisk
		a.mu.Unlock()
		if waits {
			a.post(mail{arrived: waitDisk})
		}
	}
}
