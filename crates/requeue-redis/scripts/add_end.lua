            end
            answers[i] = add_level(ARGV[i + 2], value, 0)
        else
            answers[i] = 'u'
        end
    end
end
if f > 0 then
    call('HSET', states, unpack(fields))
end
count_dirty(dirty)
line_up(fresh)
if close_lines then
    close_lines()
end
return table.concat(answers)
