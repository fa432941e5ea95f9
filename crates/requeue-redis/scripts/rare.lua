-- All from here to end.lua is for calls that need it: the others do not pay for making its
-- functions.
local function rare(...)
