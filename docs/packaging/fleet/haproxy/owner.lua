-- Sends each request to the node of the fleet that owns its host (docs/fleet.md, "Load balancers"). For HAProxy from 2.6,
-- built with Lua 5.3 or later.
--
-- It reads GET /api/v1/fleet/partitions from one node after another, once a second, and sets the variable `txn.owner` to the name of the
-- owner. Without an answer it keeps what it has; without an owner the variable is not set. A wrong owner costs a hop, no more.
--
--   CRAWLGATE_ADMIN   the admin listeners of the nodes, separated by spaces: http://10.0.0.5:3129 http://10.0.0.6:3129
--   CRAWLGATE_TOKEN   the admin token, if they have one

local admin = {}
for url in (os.getenv("CRAWLGATE_ADMIN") or ""):gmatch("%S+") do
  admin[#admin + 1] = url
end
assert(#admin > 0, "CRAWLGATE_ADMIN names no admin listener")
local token = os.getenv("CRAWLGATE_TOKEN")

local INTERVAL_MS, TIMEOUT_MS = 1000, 2000

-- The table in use: the two halves of the key, and the owner of each partition; false for none.
local partitions

local function rotate(number, bits)
  return (number << bits) | (number >> (64 - bits))
end

-- SipHash-2-4.
local function siphash(k0, k1, text)
  local v0, v1 = k0 ~ 0x736f6d6570736575, k1 ~ 0x646f72616e646f6d
  local v2, v3 = k0 ~ 0x6c7967656e657261, k1 ~ 0x7465646279746573
  local function rounds(count)
    for _ = 1, count do
      v0 = v0 + v1
      v1 = rotate(v1, 13) ~ v0
      v0 = rotate(v0, 32)
      v2 = v2 + v3
      v3 = rotate(v3, 16) ~ v2
      v0 = v0 + v3
      v3 = rotate(v3, 21) ~ v0
      v2 = v2 + v1
      v1 = rotate(v1, 17) ~ v2
      v2 = rotate(v2, 32)
    end
  end
  local length = #text
  text = text .. string.rep("\0", 7 - length % 8) .. string.char(length % 256)
  for at = 1, #text, 8 do
    local word = string.unpack("<i8", text, at)
    v3 = v3 ~ word
    rounds(2)
    v0 = v0 ~ word
  end
  v2 = v2 ~ 0xff
  rounds(4)
  return v0 ~ v1 ~ v2 ~ v3
end

-- The remainder of a number without a sign.
local function remainder(number, divisor)
  local quotient = ((number >> 1) // divisor) << 1
  local rest = number - quotient * divisor
  return math.ult(rest, divisor) and rest or rest - divisor
end

local function read(body)
  local key = body:match('"hash_key":%s*"(%x+)"')
  local list = body:match('"owners":%s*(%b[])')
  if not key or #key ~= 32 or not list then
    return nil
  end
  local bytes = key:gsub("%x%x", function(digits)
    return string.char(tonumber(digits, 16))
  end)
  local found = { owners = {}, complete = true }
  found.k0, found.k1 = string.unpack("<i8i8", bytes)
  for item in list:gmatch("[^%s,%[%]]+") do
    local owner = item:match('^"(.*)"$') or false
    found.complete = found.complete and owner ~= false
    found.owners[#found.owners + 1] = owner
  end
  return #found.owners > 0 and found or nil
end

core.register_task(function()
  local at, failing = 0, false
  local headers = token and { authorization = { "Bearer " .. token } } or {}
  while true do
    local url = admin[at % #admin + 1] .. "/api/v1/fleet/partitions"
    local answer = core.httpclient():get({ url = url, headers = headers, timeout = TIMEOUT_MS })
    local found = answer and answer.status == 200 and read(answer.body)
    if found then
      -- A node that has lost the database knows no owner of its own hosts: what is known of them is better.
      if found.complete or not partitions then
        partitions = found
      end
    elseif not failing then
      core.Warning(string.format("crawlgate: no partitions from %s (status %s)", url, answer and answer.status or "none"))
    end
    failing = not found
    -- Another node each time.
    at = at + 1
    core.msleep(INTERVAL_MS)
  end
end)

-- The host of the target, which counts rather than the field Host: an absolute URL, or the host and port of a CONNECT.
local function target_host(txn)
  local target = txn.f:url() or ""
  local authority = target:match("^%a[%w+.%-]*://([^/?#]*)")
  if not authority and txn.f:method() == "CONNECT" then
    authority = target
  end
  authority = authority or txn.f:req_hdr("host")
  return authority and authority:match("[^@]*$")
end

core.register_action("crawlgate-owner", { "http-req" }, function(txn)
  local host = target_host(txn)
  if not partitions or not host then
    return
  end
  host = host:lower():gsub(":%d*$", ""):gsub("^%[(.*)%]$", "%1"):gsub("%.$", "")
  local number = remainder(siphash(partitions.k0, partitions.k1, host), #partitions.owners)
  local owner = partitions.owners[number + 1]
  if owner then
    txn:set_var("txn.owner", owner)
  end
end)
