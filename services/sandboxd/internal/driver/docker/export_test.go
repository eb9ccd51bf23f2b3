package docker

import (
	"context"
	"time"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// SeeNothing makes a driver that cannot look at what is open in containers.
func (d *Driver) SeeNothing() { d.sees = func(int) (bool, error) { return false, nil } }

// CreateBounded makes a container, and starts none, where the engine says that it can bound what is written.
func (d *Driver) CreateBounded(ctx context.Context, id string) (quota bool, err error) {
	_, quota, err = d.createContainer(ctx, driver.Spec{ID: id, Limits: driver.Limits{DiskBytes: 1 << 20}}, settings{}, facts{quota: true})
	return quota, err
}

// WaitForGuests sets how long guests are waited for.
func (d *Driver) WaitForGuests(patience time.Duration) { d.guests.patience = patience }

// Guest is the program that is started in containers.
func (d *Driver) Guest() string { return d.guest }
