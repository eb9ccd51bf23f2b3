package docker

import (
	"context"
	"time"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// SeeNothing makes a driver unable to see the open files of containers.
func (d *Driver) SeeNothing() { d.sees = func(int) (bool, error) { return false, nil } }

// CreateBounded creates a container, without starting it, if the engine reports that it can bound writes.
func (d *Driver) CreateBounded(ctx context.Context, id string) (quota bool, err error) {
	_, quota, err = d.createContainer(ctx, driver.Spec{ID: id, Limits: driver.Limits{DiskBytes: 1 << 20}}, settings{}, facts{quota: true})
	return quota, err
}

// WaitForGuests sets how long guests are waited for.
func (d *Driver) WaitForGuests(patience time.Duration) { d.guests.patience = patience }

// Guest is the program that is started in containers.
func (d *Driver) Guest() string { return d.guest.Path }
