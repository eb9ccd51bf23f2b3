package sqlite

import "github.com/evalfleet/evalfleet/pkg/sqlite/sqlitefault"

// On puts the file on a disk that can fail.
func (c *Cache) On(disk *sqlitefault.Disk) *Cache {
	c.options.VFS = disk.Name()
	return c
}
